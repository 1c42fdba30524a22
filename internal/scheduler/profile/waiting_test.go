package profile

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Each Permit plugin waits as long as it said, whatever the others do.
func TestPermitTimeouts(t *testing.T) {
	waits := map[string]time.Duration{"Short": time.Second, "Long": time.Minute}
	for _, test := range []struct {
		name  string
		allow map[string]time.Duration // when a plugin allows the pod
		took  time.Duration
		want  string // the rejection; "" is none
	}{
		{"nobody allows", nil, time.Second, "rejected due to timeout after waiting 1s at plugin Short"},
		{"all allow", map[string]time.Duration{"Short": time.Millisecond, "Long": 2 * time.Second}, 2 * time.Second, ""},
		{"the second is too late", map[string]time.Duration{"Short": time.Millisecond, "Long": 2 * time.Minute}, time.Minute, "rejected due to timeout after waiting 1m0s at plugin Long"},
		{"the first is too late", map[string]time.Duration{"Short": 2 * time.Second, "Long": time.Millisecond}, time.Second, "rejected due to timeout after waiting 1s at plugin Short"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, began := newWaitingPods(), time.Now()
				w.add(framework.NewPodInfo(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}), "a", waits)
				pod := w.Get("p")
				for plugin, after := range test.allow {
					time.AfterFunc(after, func() { pod.Allow(plugin) })
				}
				status := w.wait(t.Context(), "p")
				if took := time.Since(began); took != test.took || status.Message() != test.want {
					t.Errorf("%q after %v, want %q after %v", status.Message(), took, test.want, test.took)
				}
				if w.Get("p") != nil {
					t.Error("the pod still waits")
				}
			})
		})
	}
}

// A victim of a preemption fails, and is tried again after a back-off. What is
// rejected waits for an event that helps.
func TestAPreemptedPodIsTriedAgain(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(p framework.WaitingPod) bool
		want framework.Code
	}{
		{"rejected", func(p framework.WaitingPod) bool { return p.Reject("X", "no") }, framework.Unschedulable},
		{"preempted", func(p framework.WaitingPod) bool { return p.Preempt("X", "no") }, framework.Error},
	} {
		w := newWaitingPods()
		w.add(framework.NewPodInfo(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}), "a", map[string]time.Duration{"A": time.Minute})
		if !test.end(w.Get("p")) {
			t.Errorf("%s: the pod goes on", test.name)
		}
		if s := w.wait(t.Context(), "p"); s.Code() != test.want || s.Message() != "no" {
			t.Errorf("%s: %v %q, want %v", test.name, s.Code(), s.Message(), test.want)
		}
	}
}

// A rejection has no effect once the pod was allowed, and says so.
func TestRejectAfterDecision(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(p framework.WaitingPod)
		want bool
	}{
		{"undecided", func(framework.WaitingPod) {}, true},
		{"one of two allowed", func(p framework.WaitingPod) { p.Allow("A") }, true},
		{"allowed", func(p framework.WaitingPod) { p.Allow("A"); p.Allow("B") }, false},
		{"rejected", func(p framework.WaitingPod) { p.Reject("A", "no") }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWaitingPods()
			w.add(framework.NewPodInfo(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}), "a", map[string]time.Duration{"A": time.Minute, "B": time.Minute})
			pod := w.Get("p")
			test.do(pod)
			if got := pod.Reject("X", "preempted"); got != test.want {
				t.Errorf("rejected: %t, want %t", got, test.want)
			}
			if got := !w.wait(t.Context(), "p").IsSuccess(); got != test.want {
				t.Errorf("the wait ended with a rejection: %t, want %t", got, test.want)
			}
			if got := pod.Reject("X", "preempted"); got != test.want {
				t.Errorf("rejected after the wait: %t, want %t", got, test.want)
			}
		})
	}
}
