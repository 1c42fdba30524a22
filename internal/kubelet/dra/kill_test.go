package dra

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/kubelet/files/filestest"
)

// TestKilledAtEachStep kills the kubelet after each change of the disk, and
// before and after each call to a driver. The next kubelet starts the pod, or
// finds that it is gone.
func TestKilledAtEachStep(t *testing.T) {
	for _, gone := range []bool{true, false} {
		for steps := 0; ; steps++ {
			if finished := killAfter(t, steps, gone); finished {
				if steps < 8 {
					t.Errorf("only %d steps", steps)
				}
				break
			}
		}
	}
}

// killAfter kills a kubelet after a number of steps, starts another, and returns
// whether the first had finished.
func killAfter(t *testing.T, steps int, gone bool) (finished bool) {
	t.Helper()
	pod := newPod("p", "a", "b")
	b := newBench(t, newClaim("a", []string{gpus, nics}, pod), newClaim("b", []string{gpus}, pod))
	gpu, nic := b.serve(gpus), b.serve(nics)
	first := filestest.NewFailAfter(b.files, steps)
	m, stop := b.manager(first)
	killed := func(context.Context, string) error { return first.Step() }
	gpu.Before, gpu.After, nic.Before, nic.After = killed, killed, killed, killed
	finished = m.Prepare(t.Context(), pod) == nil && m.Unprepare(t.Context(), pod.UID) == nil
	stop()
	gpu.Before, gpu.After, nic.Before, nic.After = nil, nil, nil, nil
	next, stop := b.manager(b.files)
	defer stop()
	if gone {
		next.reconcile(t.Context())
	} else {
		if err := next.Prepare(t.Context(), pod); err != nil {
			t.Fatalf("killed after %d steps: %v", steps, err)
		}
		if got := devices(t, next, pod); strings.Count(got, "/device=") != 6 {
			t.Errorf("killed after %d steps: the container gets %s", steps, got)
		}
		if got, want := append(gpu.Prepared(), nic.Prepared()...), []string{"uid-a", "uid-b", "uid-a"}; !slices.Equal(got, want) {
			t.Errorf("killed after %d steps: prepared are %q, want %q", steps, got, want)
		}
		if err := next.Unprepare(t.Context(), pod.UID); err != nil {
			t.Errorf("killed after %d steps: %v", steps, err)
		}
	}
	if left := append(gpu.Prepared(), nic.Prepared()...); len(left) > 0 {
		t.Errorf("killed after %d steps: %q stay prepared", steps, left)
	}
	if users := next.state.pods(); len(users) > 0 {
		t.Errorf("killed after %d steps: %q use claims", steps, users)
	}
	if t.Failed() {
		t.FailNow()
	}
	return finished
}

// A kubelet that starts again knows the devices of the containers that run,
// without their drivers. It prepares claims again for a new sandbox, because the
// machine may have been started again.
func TestRestart(t *testing.T) {
	pod, ended := newPod("p", "a"), newPod("ended", "a", "b")
	b := newBench(t, newClaim("a", []string{gpus}, pod, ended), newClaim("b", []string{gpus}, ended))
	gpu := b.serve(gpus)
	m, stop := b.manager(b.files)
	for _, p := range []*v1.Pod{pod, ended} {
		if err := m.Prepare(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	want := devices(t, m, pod)
	stop()
	gpu.Calls()
	b.stops[gpus]()
	b.active = []*v1.Pod{pod}
	if err := b.api.ResourceV1().ResourceClaims("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil { // as if the API server were away
		t.Fatal(err)
	}
	m, _ = b.manager(b.files)
	if got := devices(t, m, pod); !m.Prepared(pod) || got != want {
		t.Errorf("after a restart, the container gets %s, want %s", got, want)
	}
	b.serve(gpus)
	controllertest.Eventually(t, func() bool { return m.drivers.isConnected(gpus) }, true)
	m.reconcile(t.Context())
	expectCalls(t, gpu, "unprepare default/b")
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Error(err)
	}
	expectCalls(t, gpu, "prepare default/a")
}

// A checkpoint that was changed or cut off is not trusted. The claims of pods
// that run are prepared again.
func TestCorruptCheckpoint(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	gpu := b.serve(gpus)
	m, stop := b.manager(b.files)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	stop()
	gpu.Calls()
	written := b.checkpoint()
	for name, content := range map[string]string{
		"changed": strings.Replace(written, "device=a-0", "device=x-0", 1), "cut off": written[:len(written)/2], "empty": "",
		"newer": strings.NewReplacer("kubelet.k8s.io/v1", "kubelet.k8s.io/v2").Replace(written),
	} {
		if err := b.files.WriteFile("/var/lib/kubelet/dra_manager_state", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		config := m.config
		config.Metrics = nil
		again := New(config)
		if claims, err := again.read(); err == nil || len(claims) > 0 {
			t.Errorf("%s: read %v without an error", name, claims)
		}
	}
	m, _ = b.manager(b.files)
	if got := devices(t, m, pod); m.Prepared(pod) || got != "the ResourceClaim a is not prepared" {
		t.Errorf("the container gets %s", got)
	}
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, gpu, "prepare default/a")
	if got := b.checkpoint(); got != written {
		t.Errorf("the checkpoint is %s, want %s", got, written)
	}
}

// Nothing changes if the checkpoint cannot be written.
func TestFullDisk(t *testing.T) {
	pod := newPod("p", "a")
	b := newBench(t, newClaim("a", []string{gpus}, pod))
	gpu := b.serve(gpus)
	m, _ := b.manager(filestest.NewFailAfter(b.files, 0))
	if err := m.Prepare(t.Context(), pod); !errors.Is(err, filestest.ErrKilled) {
		t.Errorf("got %v", err)
	}
	expectCalls(t, gpu)
	if users := m.state.pods(); len(users) > 0 {
		t.Errorf("%q use claims", users)
	}
}
