package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/test/mark"
)

func TestMain(m *testing.M) { os.Exit(mark.Main(m)) }

// bomb starts another process as often as it can, as a fork bomb does, but at most
// 200 times. The shell fails when it cannot start one. What it has started ends by
// itself.
const bomb = `read go; i=0; while [ $i -lt 200 ]; do sleep 300 & i=$((i+1)); done`

// TestForkBomb runs a pod that starts as many processes as it can: no more than
// the limit of each pod, and none of those that the node keeps for itself. The
// kubelet's side still starts processes then, and ends the pod.
func TestForkBomb(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("control groups need root")
	}
	k, err := Detect()
	if err != nil {
		t.Skip(err)
	}
	for _, tt := range []struct {
		what  string
		limit int64 // of each pod
		want  uint64
	}{
		{"a pod without a limit", -1, 40},
		{"a limit of each pod", 10, 10},
	} {
		t.Run(tt.what, func(t *testing.T) {
			root := "/" + mark.Name("bomb")
			t.Cleanup(func() {
				_ = k.Kill(root)
				untilDone(t, func() error { return k.Remove(root) })
			})
			p := &Pods{
				Groups: k,
				Configuration: &kubeletconfig.KubeletConfiguration{
					CgroupRoot: root, CgroupsPerQOS: new(true), CPUCFSQuota: new(true), EnforceNodeAllocatable: []string{"pods"}, PodPidsLimit: &tt.limit,
					KubeReserved: map[string]string{"pid": "60"},
				},
				Capacity: func() (v1.ResourceList, error) {
					return v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}, nil
				},
				MaxPIDs: func() (int64, error) { return 100, nil },
			}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("11111111-1111-1111-1111-111111111111")}}
			for _, err := range []error{p.ApplyClasses(nil), p.Apply(pod)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			at := filepath.Join(k.root, p.path(pod))
			if !k.unified {
				at = filepath.Join(k.root, "pids", p.path(pod))
			}
			c := exec.Command("sh", "-c", bomb)
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = in.Close() })
			if err := write(filepath.Join(at, "cgroup.procs"), strconv.Itoa(c.Process.Pid)); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err == nil {
				t.Errorf("%d processes, and none was refused", number(filepath.Join(at, "pids.current")))
			}
			if out, err := exec.Command("true").CombinedOutput(); err != nil {
				t.Errorf("the node starts no process of its own: %v: %s", err, out)
			}
			if usage, err := p.Usage(pod); err != nil || usage.Processes != tt.want-1 {
				t.Errorf("%d processes (%v), want %d besides the shell, which has ended", usage.Processes, err, tt.want-1)
			}
			untilDone(t, func() error { return p.End(pod.UID) })
		})
	}
}

// untilDone repeats what fails while processes that were killed wait for a
// processor on which they end.
func untilDone(t *testing.T, do func() error) {
	t.Helper()
	late := time.Now().Add(3 * time.Minute)
	err := do()
	for err != nil && time.Now().Before(late) {
		err = do()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestLimitOfProcesses sets limits of groups of version 1 and 2, leaves them and
// lifts them again.
func TestLimitOfProcesses(t *testing.T) {
	for _, unified := range []bool{false, true} {
		k := hierarchy(t, "cpu memory pids")
		k.unified = unified
		at := filepath.Join(k.root, "kubepods")
		if !unified {
			at = filepath.Join(k.root, "pids", "kubepods")
			if err := os.MkdirAll(at, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(k.root, "pids", "cgroup.procs"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			pids int64
			want string
		}{{100, "100"}, {0, "100"}, {unlimited, "max"}} {
			if err := k.Apply("/kubepods", nil, step.pids); err != nil {
				t.Fatal(err)
			}
			if raw, err := os.ReadFile(filepath.Join(at, "pids.max")); err != nil || string(raw) != step.want {
				t.Errorf("version 2 %v, after %d: %q (%v), want %q", unified, step.pids, raw, err, step.want)
			}
		}
	}
}
