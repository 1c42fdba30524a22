package kubelet

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
)

// usedGroups are control groups that are still in use when they are removed for
// the first time.
type usedGroups struct {
	*cgroup.Memory
	tried atomic.Bool
}

func (g *usedGroups) Remove(path string) error {
	if path == cgroup.Pod("", v1.PodQOSBestEffort, "uid-web") && !g.tried.Swap(true) {
		return errors.New("device or resource busy")
	}
	return g.Memory.Remove(path)
}

// The control group of a pod is removed, also if it was in use when the pod
// ended.
func TestControlGroupInUseIsRemovedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.configure = func(c *Config) { c.Groups = &usedGroups{Memory: b.groups} }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		b.after(time.Minute)
		group := cgroup.Pod("", v1.PodQOSBestEffort, "uid-web")
		if b.groups.Get(group) == nil {
			t.Fatalf("there is no group %s", group)
		}
		b.delete("web", 1)
		b.after(time.Minute)
		if b.groups.Get(group) != nil {
			t.Error("the group of a pod that is gone is left")
		}
	})
}

// An event tells of a pod whose control group cannot be made. It starts once that is
// possible.
func TestControlGroupCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		groups := &busyGroups{Groups: b.groups}
		b.configure = func(c *Config) { c.Groups = groups }
		b.start()
		defer func() { b.stop() }()
		b.after(time.Second)
		groups.fails.Store(true)
		events := b.record() // the image is pulled at the same time
		b.create(pod("web"))
		b.after(time.Second)
		if got := events("FailedCreatePodContainer"); len(got) == 0 || !strings.Contains(got[0], "unable to ensure pod container exists: ") {
			t.Errorf("events %q", got)
		}
		groups.fails.Store(false)
		b.after(5 * time.Minute)
		if phase := b.get("web").Status.Phase; phase != v1.PodRunning {
			t.Errorf("five minutes after it is possible the pod is %s", phase)
		}
	})
}
