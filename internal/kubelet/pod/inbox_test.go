package pod

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/status"
)

// Others read the pods of the node while their workers change the statuses of
// static pods.
func TestStatusOfAStaticPodDoesNotChangeItsReaders(t *testing.T) {
	b := newInbox(&v1.Pod{})
	read, _ := b.active()
	b.setStatus(v1.PodStatus{Phase: v1.PodRunning})
	if read.Status.Phase != "" {
		t.Error("a pod that was read before has changed")
	}
	now, _ := b.active()
	if now.Status.Phase != v1.PodRunning {
		t.Errorf("the status is %q", now.Status.Phase)
	}
	b.setStatus(v1.PodStatus{Phase: v1.PodRunning})
	if again, _ := b.active(); again != now {
		t.Error("an equal status makes a new version")
	}
}

// Those that add up what the pods of a node hold compare versions by pointer.
func TestActivePodIsOneVersion(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: cpu("2")}}}}
	b := newInbox(pod)
	b.setAllocation(&allocation{Containers: map[string]v1.ResourceRequirements{"main": cpu("1")}})
	held, _ := b.active()
	if got := held.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "1" {
		t.Fatalf("the pod holds %s of CPU, and 1 is allocated", got)
	}
	if again, _ := b.active(); again != held {
		t.Error("an unchanged pod has another version")
	}
	b.setAllocation(&allocation{Containers: map[string]v1.ResourceRequirements{"main": cpu("2")}})
	if now, _ := b.active(); now.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
		t.Errorf("after an allocation of 2 the pod holds %s", now.Spec.Containers[0].Resources.Requests.Cpu())
	}
}

// A pod that the node rejects holds nothing, and nothing is kept of what it asked for.
func TestRejectedPodHoldsNothing(t *testing.T) {
	b := newInbox(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: cpu("2")}}}})
	b.active()
	b.reject(status.Cause{Reason: "NodeAffinity"})
	if b.allocation() != nil || b.shaped != (shaped{}) {
		t.Errorf("it holds %+v, %+v", b.allocation(), b.shaped)
	}
	if _, active := b.active(); active {
		t.Error("it is active")
	}
}

func cpu(amount string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}}
}

// A pod that is ending may get less time for that, and never more.
func TestFailureLeavesLessTime(t *testing.T) {
	b := newInbox(&v1.Pod{})
	for _, test := range []struct {
		grace *int64
		want  int64
	}{{nil, 30}, {new(int64(20)), 20}, {new(int64(60)), 20}, {nil, 20}, {new(int64(1)), 1}} {
		b.fail(status.Cause{Reason: evicted}, test.grace, nil)
		if r := b.request(); GracePeriod(r.pod, r.grace) != test.want {
			t.Errorf("after %v the pod has %d s, want %d s", test.grace, GracePeriod(r.pod, r.grace), test.want)
		}
	}
}

// Nor is anything kept of what a pod asked for of which only its end is known.
func TestReducedPodHoldsNothing(t *testing.T) {
	b := newInbox(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: cpu("2")}}}})
	b.active()
	b.update(&v1.Pod{Status: v1.PodStatus{Phase: v1.PodSucceeded}})
	if b.allocation() != nil || b.shaped != (shaped{}) {
		t.Errorf("it holds %+v, %+v", b.allocation(), b.shaped)
	}
	if _, active := b.active(); active {
		t.Error("it is active")
	}
}

// Results of probes, pods and objects that change all the time do not keep the worker
// busy. It learns of the last change, and of a deletion at once.
func TestChangesAllTheTime(t *testing.T) {
	for name, change := range map[string]func(b *inbox){
		"probes": (*inbox).probeChanged, "objects": (*inbox).refresh,
		"pods": func(b *inbox) {
			b.update(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: b.asked.pod.Generation + 1}})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newInbox(&v1.Pod{})
			woken := func() (yes int) {
				select {
				case <-b.woken:
					return 1
				default:
					return 0
				}
			}
			syncs := 0
			for range 10 * wakeBurst {
				change(&b)
				syncs += woken()
			}
			if syncs != wakeBurst {
				t.Errorf("%s: %d syncs at once, want %d", name, syncs, wakeBurst)
			}
			deleted := &v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
			if b.update(deleted); woken() != 1 {
				t.Errorf("%s: the worker does not learn of the deletion at once", name)
			}
			time.Sleep(wakePeriod)
			synctest.Wait()
			if woken() != 1 || len(b.probed) != 1 {
				t.Errorf("%s: the worker does not learn of the last change", name)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if woken() != 0 {
				t.Errorf("%s: the worker syncs without a change", name)
			}
		})
	}
}
