package status

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientfake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// writer is a Manager with an API server in memory.
type writer struct {
	*Manager
	t      *testing.T
	api    *clientfake.Clientset
	writes atomic.Int32 // patches that arrived
	// fault is called for each write or deletion. Its error is the answer.
	fault func(verb string) error

	mu      sync.Mutex // guards removed
	removed []types.UID
}

// run calls f with a Manager that runs in a bubble of virtual time.
func run(t *testing.T, f func(t *testing.T, w *writer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{t: t, api: clientfake.NewSimpleClientset()}
		for _, verb := range []string{"patch", "delete"} {
			w.api.PrependReactor(verb, "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
				if verb == "patch" {
					w.writes.Add(1)
				}
				if w.fault != nil {
					if err := w.fault(verb); err != nil {
						return true, nil, err
					}
				}
				return false, nil, nil
			})
		}
		w.Manager = NewManager(w.api, func(uid types.UID) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.removed = append(w.removed, uid)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		f(t, w)
	})
}

func (w *writer) create(conditions ...v1.PodCondition) *v1.Pod {
	w.t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid", ResourceVersion: "1"}}
	p.Status.Conditions = conditions
	created, err := w.api.CoreV1().Pods("default").Create(w.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

// get returns the pod, nil if there is none.
func (w *writer) get() *v1.Pod {
	p, err := w.api.CoreV1().Pods("default").Get(w.t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

func (w *writer) set(pod *v1.Pod, st v1.PodStatus, remove bool) {
	w.Set(w.t.Context(), pod, st, remove)
	synctest.Wait()
}

func running(message string) v1.PodStatus {
	return v1.PodStatus{Phase: v1.PodRunning, Message: message, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
}

func statusOf(p *v1.Pod, t v1.PodConditionType) v1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return ""
}

// A status that was generated before a client set a readiness gate, and is
// written after that, does not change the gate.
func TestStatusKeepsNewerConditionsOfOthers(t *testing.T) {
	const gate, gone v1.PodConditionType = "example.com/gate", "example.com/gone"
	run(t, func(t *testing.T, w *writer) {
		old := w.create(v1.PodCondition{Type: gone, Status: v1.ConditionTrue})
		w.set(old, running("first"), false)
		st := running("second") // generated from the old object
		st.Conditions = append(st.Conditions, v1.PodCondition{Type: gone, Status: v1.ConditionTrue})
		newer := w.get().DeepCopy()
		newer.ResourceVersion = "100"
		newer.Status.Conditions = []v1.PodCondition{newer.Status.Conditions[0], {Type: gate, Status: v1.ConditionTrue}}
		newer.Status.Conditions[0] = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
		if _, err := w.api.CoreV1().Pods("default").UpdateStatus(t.Context(), newer, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Known(newer)
		w.set(old, st, false)
		got := w.get()
		if statusOf(got, gate) != v1.ConditionTrue || statusOf(got, gone) != "" || got.Status.Message != "second" {
			t.Errorf("after the write: %+v", got.Status)
		}
		if statusOf(got, v1.PodReady) != v1.ConditionTrue {
			t.Errorf("the kubelet's own condition: %+v", got.Status)
		}
	})
}

func TestEqualStatusIsNotWritten(t *testing.T) {
	run(t, func(t *testing.T, w *writer) {
		p := w.create()
		for range 5 {
			w.set(p, running("same"), false)
		}
		if n := w.writes.Load(); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
		changed := w.get().DeepCopy() // as the node lifecycle controller does
		changed.ResourceVersion = "100"
		changed.Status.Conditions[0].Status = v1.ConditionFalse
		if _, err := w.api.CoreV1().Pods("default").UpdateStatus(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Known(changed)
		w.set(p, running("same"), false)
		if got := statusOf(w.get(), v1.PodReady); got != v1.ConditionTrue {
			t.Errorf("a condition that another client wrote stays %q", got)
		}
		if st, ok := w.Last("uid"); !ok || st.Message != "same" {
			t.Errorf("the last status is %+v, %v", st, ok)
		}
	})
}

// While the API server is down, statuses replace each other. The last one is
// sent in a single write soon after the server is back.
func TestServerAway(t *testing.T) {
	run(t, func(t *testing.T, w *writer) {
		var away atomic.Bool
		away.Store(true)
		w.fault = func(string) error {
			if away.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		p := w.create()
		for i := range 60 {
			w.set(p, running(fmt.Sprint(i)), false)
			time.Sleep(5 * time.Second)
		}
		if n := w.writes.Load(); n > 100 {
			t.Errorf("%d attempts in five minutes", n)
		}
		before := w.writes.Load()
		away.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := w.get().Status.Message; got != "59" {
			t.Errorf("the server has %q", got)
		}
		if n := w.writes.Load() - before; n != 1 {
			t.Errorf("%d writes after the server was back", n)
		}
	})
}

// A pod is deleted after its last status was written, and not before.
func TestRemove(t *testing.T) {
	run(t, func(t *testing.T, w *writer) {
		var failures atomic.Int32
		failures.Store(2)
		last := ""
		w.fault = func(verb string) error {
			if failures.Add(-1) >= 0 {
				return errors.New("connection refused")
			}
			if verb == "delete" { // the clientset is locked
				o, err := w.api.Tracker().Get(v1.SchemeGroupVersion.WithResource("pods"), "default", "web")
				if err != nil {
					return err
				}
				last = o.(*v1.Pod).Status.Message
			}
			return nil
		}
		p := w.create()
		w.set(p, running("the end"), true)
		if !w.Removing("uid") {
			t.Error("Removing is false")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.get() != nil || last != "the end" {
			t.Errorf("the pod is %+v, its last status was %q", w.get(), last)
		}
		if len(w.removed) != 1 || w.removed[0] != "uid" || w.Removing("uid") {
			t.Errorf("removed %v", w.removed)
		}
		if _, ok := w.Last("uid"); ok {
			t.Error("the status is kept")
		}
	})
}

// A status that the API server refuses, because the pod is as large as it may be, is not
// sent again and again, and does not keep the pod from being deleted.
func TestRefusedStatus(t *testing.T) {
	for name, refusal := range map[string]error{
		"too large": apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		"invalid":   apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web", nil),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *writer) {
				w.fault = func(verb string) error {
					if verb == "patch" {
						return refusal
					}
					return nil
				}
				p := w.create()
				w.set(p, running("large"), false)
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := w.writes.Load(); n < 2 || n > 50 {
					t.Errorf("%d attempts in an hour", n)
				}
				w.set(p, running("the end"), true)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if w.get() != nil || len(w.removed) != 1 {
					t.Errorf("the pod is %+v, removed %v", w.get(), w.removed)
				}
			})
		})
	}
}

// A pod that is gone, or whose name another pod has, is reported and forgotten.
// A conflict about anything else is tried again.
func TestPodIsGone(t *testing.T) {
	resource := v1.Resource("pods")
	for name, test := range map[string]struct {
		fault   error
		replace bool
		removed int
	}{
		"not found":        {apierrors.NewNotFound(resource, "web"), false, 1},
		"another pod":      {apierrors.NewConflict(resource, "web", errors.New("precondition failed: UID")), true, 1},
		"another conflict": {apierrors.NewConflict(resource, "web", errors.New("the object has been modified")), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *writer) {
				failed := false
				w.fault = func(string) error {
					if failed {
						return nil
					}
					failed = true
					return test.fault
				}
				p := w.create()
				if test.replace {
					if err := w.api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "default", "web"); err != nil {
						t.Fatal(err)
					}
					other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "other"}}
					if _, err := w.api.CoreV1().Pods("default").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				w.set(p, running("x"), false)
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(w.removed) != test.removed {
					t.Errorf("removed %v, want %d", w.removed, test.removed)
				}
				if got := w.get().Status.Message; (got == "x") != (test.removed == 0) {
					t.Errorf("the pod of that name has the message %q", got)
				}
			})
		})
	}
}

// A write that panics is retried, and does not delay other pods.
func TestPanicInAWrite(t *testing.T) {
	run(t, func(t *testing.T, w *writer) {
		panics := 0
		w.fault = func(string) error {
			if panics++; panics == 1 {
				panic("a bug")
			}
			return nil
		}
		w.set(w.create(), running("x"), false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.get().Status.Message; got != "x" {
			t.Errorf("the server has %q", got)
		}
	})
}

// A status that waits for a retry is not written after Forget, nor after Run
// has ended.
func TestForgottenPodIsNotWritten(t *testing.T) {
	run(t, func(t *testing.T, w *writer) {
		w.fault = func(string) error { return errors.New("connection refused") }
		p := w.create()
		w.set(p, running("x"), true)
		w.Forget("uid")
		w.fault = nil
		before := w.writes.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.writes.Load() - before; n != 0 || w.get() == nil || len(w.removed) != 0 {
			t.Errorf("%d writes, the pod is %v, removed %v", n, w.get(), w.removed)
		}
	})
}

// Of the pods whose statuses it writes, the Manager keeps no specifications, also not
// those of the API server's answers.
func TestSpecificationsAreNotKept(t *testing.T) {
	run(t, func(t *testing.T, w *writer) {
		p := w.create()
		p.Spec.NodeName = "here"
		if _, err := w.api.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, change := range []func(){func() { w.set(p, running("first"), false) }, func() { w.Known(p) }, func() { w.set(p, running("second"), false) }} {
			change()
			w.Manager.mu.Lock()
			kept := w.entries["uid"].pod
			w.Manager.mu.Unlock()
			if kept.Spec.NodeName != "" || kept.Name != "web" {
				t.Errorf("the Manager keeps %+v", kept)
			}
		}
		if got := w.get(); got.Status.Message != "second" || got.Spec.NodeName != "here" {
			t.Errorf("the API server has %+v", got)
		}
	})
}

// Of a pod of which the kubelet keeps no more than how it ended, the Manager keeps no
// status, also if it writes one when it is told. The pod can be deleted.
func TestStatusOfAReducedPodIsNotKept(t *testing.T) {
	run(t, func(t *testing.T, w *writer) {
		p := w.create()
		st := v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}}
		reduced := p.DeepCopy()
		reduced.Status = v1.PodStatus{Phase: v1.PodSucceeded}
		w.fault = func(string) error {
			w.Known(reduced)
			return nil
		}
		kept := func() int {
			w.Manager.mu.Lock()
			defer w.Manager.mu.Unlock()
			return len(w.entries)
		}
		w.set(p, st, false)
		if n := kept(); n != 0 || len(w.get().Status.ContainerStatuses) != 1 {
			t.Errorf("%d statuses are kept, and the API server has %+v", n, w.get().Status)
		}
		w.set(reduced, Generate(Input{Pod: reduced, Previous: reduced.Status, Ended: true}), false)
		if n, writes := kept(), w.writes.Load(); n != 0 || writes != 1 || len(w.get().Status.ContainerStatuses) != 1 {
			t.Errorf("%d statuses are kept after %d writes, and the API server has %+v", n, writes, w.get().Status)
		}
		w.set(reduced, reduced.Status, true)
		if w.get() != nil {
			t.Error("the pod is not deleted")
		}
	})
}

// A pod whose status changes all the time does not keep the API server busy. Its last
// status is written, and so is its end.
func TestChangesWithoutEndAreWrittenInTurns(t *testing.T) {
	run(t, func(t *testing.T, w *writer) {
		p := w.create()
		const changes = 10 * writeBurst
		for i := range changes {
			w.set(p, running(fmt.Sprint(i)), false)
		}
		if n := w.writes.Load(); n != writeBurst {
			t.Errorf("%d changes at once are %d writes, want %d", changes, n, writeBurst)
		}
		time.Sleep(2 * writePeriod)
		synctest.Wait()
		if n, last := w.writes.Load(), w.get().Status.Message; n != writeBurst+1 || last != fmt.Sprint(changes-1) {
			t.Errorf("after %d writes, the status is that of change %s", n, last)
		}
		w.set(p, running("again"), false)
		w.set(p, running("and again"), false)
		w.set(p, v1.PodStatus{Phase: v1.PodSucceeded}, false)
		time.Sleep(writePeriod)
		synctest.Wait()
		if phase := w.get().Status.Phase; phase != v1.PodSucceeded {
			t.Errorf("the pod is %s after its end", phase)
		}
	})
}
