package eviction

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// crowded is a disk whose trees have many files: each takes some time to be counted.
type crowded struct {
	files.Memory
	takes          time.Duration
	counting, most atomic.Int32
}

func (c *crowded) Usage(string) (bytes, inodes int64, err error) {
	c.most.Store(max(c.most.Load(), c.counting.Add(1)))
	<-time.After(c.takes)
	c.counting.Add(-1)
	return 1, 1, nil
}

// A few trees of different pods are counted at a time. A pod with few trees does not
// wait for one with many, and what was counted a moment ago is not counted again.
func TestPodsShareTheTimeOfCounting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &crowded{takes: time.Second}
		c := newCounter(disk)
		count := func(pod types.UID, trees int) {
			for i := range trees {
				if n := c.count(t.Context(), pod, fmt.Sprint(i), countAge); n.err != nil || n.bytes != 1 {
					t.Errorf("%s: %+v", pod, n)
				}
			}
		}
		var all sync.WaitGroup
		for _, pod := range []types.UID{"a", "b", "c"} {
			all.Go(func() { count(pod, 100) })
		}
		time.Sleep(30500 * time.Millisecond)
		began := time.Now()
		count("web", 3)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("three trees were counted after %v, beside pods with many", took)
		}
		if n := c.count(t.Context(), "web", "2", countAge); n.err != nil || n.bytes != 1 || n.took != 0 {
			t.Errorf("what was just counted: %+v", n)
		}
		all.Wait()
		if n := disk.most.Load(); n != countsAtATime {
			t.Errorf("%d trees were counted at a time, want %d", n, countsAtATime)
		}
		if n := c.count(t.Context(), "web", "2", shownAge+time.Hour); n.took != 0 {
			t.Errorf("what was counted before, for somebody who takes it: %+v", n)
		}
		time.Sleep(shownAge)
		if c.forget(); len(c.pods) > 0 {
			t.Errorf("%d pods are remembered whose counts are old", len(c.pods))
		}
	})
}

// A pod that takes long to be counted is not counted again at once.
func TestASlowPodRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(&files.Memory{})
		for _, test := range []struct{ took, rest time.Duration }{{0, 0}, {5 * time.Second, 20 * time.Second}, {time.Hour, time.Minute}} {
			if !c.begin("a") || c.begin("a") {
				t.Fatal("a check does not begin, or begins twice")
			}
			c.end("a", test.took)
			if test.rest > 0 && c.begin("a") {
				t.Errorf("after %v the next check begins at once", test.took)
			}
			time.Sleep(test.rest)
		}
		if !c.begin("a") {
			t.Error("after its rest a pod is not checked")
		}
	})
}

// When disk is short, a pod that has too many trees to be counted counts as one that
// may use everything.
func TestTheTimeForOnePodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &crowded{takes: 5 * time.Second}
		u := &usage{sources: &Sources{Files: disk, Volumes: podDirs{}}, counter: newCounter(disk), podLogsDir: "/logs"}
		pod := storagePod("")
		pod.UID = "1"
		for i := range 1000 {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i), VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		}
		began := time.Now()
		got := u.candidate(t.Context(), pod, v1.ResourceEphemeralStorage, everywhere())
		if took := time.Since(began); got.Uncounted == nil || took > 2*rankTime {
			t.Errorf("%v after %v", got.Uncounted, took)
		}
	})
}
