package gc

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
)

// run runs loop for the given time and returns once it has ended.
func run(t *testing.T, lasts time.Duration, loop func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	loop(ctx)
	if ctx.Err() == nil {
		t.Error("the loop ended before its context")
	}
}

// workers are the UIDs of the pods that have workers. It records the orphans.
type workers struct {
	has      []types.UID
	orphans  []cri.Summary
	starting bool
}

func (w *workers) Has(uid types.UID) bool { return slices.Contains(w.has, uid) }
func (w *workers) Ready() bool            { return !w.starting }
func (w *workers) Orphan(s *cri.Summary)  { w.orphans = append(w.orphans, *s) }

func TestSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := inmemory.New()
		var ids []string
		for i := range 4 {
			id, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "uid", Attempt: uint32(i)}}, "")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		observed := []pod.Observed{
			{Pod: &v1.Pod{}, Runtime: &cri.Pod{
				Sandboxes:  []*cri.Sandbox{{ID: ids[3]}, {ID: "gone"}, {ID: ids[2]}, {ID: ids[1], Ready: true}, {ID: ids[0]}},
				Containers: []*cri.Container{{ID: "c", SandboxID: ids[0]}},
			}},
			{Pod: &v1.Pod{}, Runtime: &cri.Pod{}},
		}
		run(t, collectionPeriod+time.Second, func(ctx context.Context) {
			Sandboxes(ctx, runtime, func() []pod.Observed { return observed })
		})
		list, err := runtime.ListPodSandbox(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, s := range list {
			left = append(left, s.GetId())
		}
		slices.Sort(left)
		if want := []string{ids[0], ids[1], ids[3]}; !slices.Equal(left, want) {
			t.Errorf("left %q, want the newest, the ready one and the one with a container: %q", left, want)
		}
	})
}

func TestVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &workers{has: []types.UID{"lives"}}
		run(t, housekeepingPeriod+time.Second, func(ctx context.Context) {
			Volumes(ctx, func() ([]types.UID, error) { return []types.UID{"lives", "dead"}, nil }, w)
		})
		if len(w.orphans) != 1 || w.orphans[0].UID != "dead" {
			t.Errorf("orphans %+v", w.orphans)
		}
	})
}

// A mirror pod that cannot be deleted is retried and does not block the others.
// A panic in one round does not end the loop.
func TestMirrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirror := func(name string) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
		tries := map[string]int{}
		rounds := 0
		run(t, 3*housekeepingPeriod+time.Second, func(ctx context.Context) {
			Mirrors(ctx, func() []*v1.Pod {
				if rounds++; rounds == 1 {
					panic("a bug")
				}
				return []*v1.Pod{mirror("stuck"), mirror("other")}
			}, func(_ context.Context, m *v1.Pod) error {
				tries[m.Name]++
				if m.Name == "stuck" {
					return errors.New("connection refused")
				}
				return nil
			})
		})
		if tries["stuck"] != 2 || tries["other"] != 2 {
			t.Errorf("tries %v, want 2 of each", tries)
		}
	})
}

// The logs of pods without workers are removed. Directories with other names
// are kept.
func TestLogs(t *testing.T) {
	const uid, other = "6f1c9d3e-0a2b-4c5d-8e9f-001122334455", "6f1c9d3e-0a2b-4c5d-8e9f-001122334466"
	synctest.Test(t, func(t *testing.T) {
		disk, w := &files.Memory{}, &workers{has: []types.UID{other}}
		for _, name := range []string{"default_web_" + uid, "default_lives_" + other, "default_web_uid", "web_" + uid, uid, "a_b_c_" + uid, "lost+found"} {
			if err := disk.MkdirAll("/logs/"+name, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		run(t, collectionPeriod+time.Second, func(ctx context.Context) { Logs(ctx, disk, "/logs", w) })
		if len(w.orphans) != 1 || w.orphans[0].UID != uid || w.orphans[0].Namespace != "default" || w.orphans[0].Name != "web" {
			t.Errorf("orphans %+v", w.orphans)
		}
		w.orphans = nil
		run(t, collectionPeriod+time.Second, func(ctx context.Context) { Logs(ctx, disk, "/missing", w) })
		if len(w.orphans) != 0 {
			t.Errorf("orphans without a directory %+v", w.orphans)
		}
	})
}

// Only links to logs that are gone are removed.
func TestLogLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &files.Memory{}
		for _, dir := range []string{"/logs", "/containers", "/containers/folder.log"} {
			if err := disk.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{"/logs/0.log", "/containers/file.log"} {
			if err := disk.WriteFile(path, nil, 0o640); err != nil {
				t.Fatal(err)
			}
		}
		for link, target := range map[string]string{"stays.log": "/logs/0.log", "goes.log": "/logs/1.log", "too.log": "../logs/1.log", "too-stays.log": "../logs/0.log", "theirs": "/logs/1.log"} {
			if err := disk.Symlink(target, "/containers/"+link); err != nil {
				t.Fatal(err)
			}
		}
		run(t, collectionPeriod+time.Second, func(ctx context.Context) { LogLinks(ctx, disk, "/containers") })
		if left, err := disk.ReadDir("/containers"); err != nil || !slices.Equal(left, []string{"file.log", "folder.log", "stays.log", "theirs", "too-stays.log"}) {
			t.Errorf("left are %q (%v)", left, err)
		}
		run(t, collectionPeriod+time.Second, func(ctx context.Context) { LogLinks(ctx, disk, "/missing") })
	})
}

// groups are control groups in memory. One of them has processes.
type groups struct {
	known []types.UID
	busy  types.UID
}

func (g *groups) Known() ([]types.UID, error) { return slices.Clone(g.known), nil }

func (g *groups) Remove(uid types.UID) error {
	if uid == g.busy {
		return errors.New("device or resource busy")
	}
	g.known = slices.DeleteFunc(g.known, func(known types.UID) bool { return known == uid })
	return nil
}

// TestCGroups removes the control groups of pods that are gone, once all pods are
// known, and only a period after they were first seen.
func TestCGroups(t *testing.T) {
	for name, test := range map[string]struct {
		starting bool
		lasts    time.Duration
		left     []types.UID
	}{
		"seen once":            {false, collectionPeriod + time.Second, []types.UID{"runs", "gone", "busy"}},
		"seen twice":           {false, 2*collectionPeriod + time.Second, []types.UID{"runs", "busy"}},
		"pods are unknown yet": {true, 5 * collectionPeriod, []types.UID{"runs", "gone", "busy"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &groups{known: []types.UID{"runs", "gone", "busy"}, busy: "busy"}
				w := &workers{has: []types.UID{"runs"}, starting: test.starting}
				run(t, test.lasts, func(ctx context.Context) { CGroups(ctx, g, w) })
				if !slices.Equal(g.known, test.left) {
					t.Errorf("left are %v, want %v", g.known, test.left)
				}
			})
		})
	}
}

// removals records the containers that are removed.
type removals struct {
	*inmemory.Runtime
	removed []string
}

func (r *removals) RemoveContainer(_ context.Context, id string) error {
	r.removed = append(r.removed, id)
	return nil
}

// TestContainers removes all that have ended except the last instance of each.
func TestContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := &removals{Runtime: inmemory.New()}
		observed := []pod.Observed{{Pod: &v1.Pod{}, Runtime: &cri.Pod{Containers: []*cri.Container{
			{ID: "starts", Name: "a", State: cri.Created}, {ID: "runs", Name: "b", State: cri.Running},
			{ID: "last", Name: "a", State: cri.Exited}, {ID: "older", Name: "a", State: cri.Exited}, {ID: "oldest", Name: "a", State: cri.Exited},
			{ID: "last-b", Name: "b", State: cri.Exited},
		}}}}
		run(t, collectionPeriod+time.Second, func(ctx context.Context) {
			Containers(ctx, runtime, func() []pod.Observed { return observed })
		})
		if want := []string{"older", "oldest"}; !slices.Equal(runtime.removed, want) {
			t.Errorf("removed are %v, want %v", runtime.removed, want)
		}
	})
}
