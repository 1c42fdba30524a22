package dynamicresources

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Pods of a group share a claim before its allocation is written. Whichever is bound
// first writes it, and a pod that is not bound takes no devices from the others.
func TestGroupSharesClaim(t *testing.T) {
	for _, failing := range []string{"", "first", "second"} {
		t.Run("failing: "+failing, func(t *testing.T) {
			f := newFixture(t, "", nil, node("a"), node("b"), class("any", ""), slice("a", "gpu-0"), slice("b", "gpu-0"), claim("c", "any"))
			member := func(name string) *v1.Pod {
				p := pod(name, "c")
				p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")}
				return p
			}
			first, second := member("first"), member("second")
			states := map[string]*framework.CycleState{}
			for _, test := range []struct {
				pod  *v1.Pod
				fits string
			}{{first, "a: fits, b: fits"}, {second, "a: fits, b: resourceclaim not available on the node"}} {
				state := framework.NewCycleState(f.h)
				states[test.pod.Name] = state
				if got := f.filter(state, test.pod); got != test.fits {
					t.Fatalf("%s: %s, want %s", test.pod.Name, got, test.fits)
				}
				if err := f.Reserve(t.Context(), state, framework.NewPodInfo(test.pod), "a").AsError(); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := f.filter(framework.NewCycleState(f.h), pod("alone", "c")), "UnschedulableAndUnresolvable: resource claim shop/c is in the process of being allocated"; got != want {
				t.Errorf("a pod without a group: %s, want %s", got, want)
			}
			want := "a/gpu-0"
			for _, p := range []*v1.Pod{second, first} {
				info := framework.NewPodInfo(p)
				if p.Name == failing {
					f.Unreserve(t.Context(), states[p.Name], info, "a")
					continue
				}
				want += " for " + p.Name
				if err := f.PreBind(t.Context(), states[p.Name], info, "a").AsError(); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			}
			if got := f.claim("c"); got != want+" protected" {
				t.Errorf("%s, want %s protected", got, want)
			}
		})
	}
}

// A claim that is pending for another pod of a group is not deallocated.
func TestPostFilterLeavesPendingClaims(t *testing.T) {
	f := newFixture(t, "", nil, node("a"), class("any", ""), slice("a", "gpu-0"), claim("c", "any"))
	web := pod("web", "c")
	web.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")}
	taken := claim("c", "any", allocatedOn("b", "gpu-0"))
	f.claims.reserve(taken)
	state := framework.NewCycleState(f.h)
	if got := f.filter(state, web); got != "a: resourceclaim not available on the node" {
		t.Fatal(got)
	}
	if _, s := f.PostFilter(t.Context(), state, framework.NewPodInfo(web), nil, nil); s.Message() != "still not schedulable" {
		t.Error(s.Message())
	}
}

// A pod that gives up a claim frees no devices that the claim got since it was
// written and deallocated.
func TestReleaseOfFormerAllocation(t *testing.T) {
	f := newFixture(t, "", nil)
	former, newer := claim("c", "any", allocatedOn("a", "gpu-0")), claim("c", "any", allocatedOn("a", "gpu-1"))
	first, second := f.claims.reserve(former), f.claims.reserve(former)
	f.claims.wrote(former.UID, former)
	f.claims.release(first)
	last := f.claims.reserve(newer)
	f.claims.release(second)
	if f.claims.pendingOf(newer.UID) == nil {
		t.Error("the devices of the newer allocation are free")
	}
	f.claims.release(last)
	if f.claims.pendingOf(newer.UID) != nil {
		t.Error("the devices of a released allocation are taken")
	}
}

// A claim that many pods of a group share is written by one after another: none of
// them is refused for a conflict, and no reservation is lost.
func TestLargeGroupSharesClaim(t *testing.T) {
	const size = 30
	f := newFixture(t, "", nil, node("a"), class("any", ""), slice("a", "gpu-0"), claim("c", "any"))
	var wg sync.WaitGroup
	var bind []func()
	for i := range size {
		p := pod(fmt.Sprint("member-", i), "c")
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")}
		state, info := framework.NewCycleState(f.h), framework.NewPodInfo(p)
		if got := f.filter(state, p); got != "a: fits" {
			t.Fatal(got)
		}
		if err := f.Reserve(t.Context(), state, info, "a").AsError(); err != nil {
			t.Fatal(err)
		}
		bind = append(bind, func() {
			if err := f.PreBind(t.Context(), state, info, "a").AsError(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, one := range bind {
		wg.Go(one)
	}
	wg.Wait()
	if got := strings.Count(f.claim("c"), " for "); got != size {
		t.Errorf("%d reservations, want %d", got, size)
	}
}
