package controllertest

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// Faults makes the watch events of a Cluster late and lets writes fail, at
// random. Pods with finalizers are deleted once they have none.
type Faults struct {
	c *Cluster
	// controllers reports whether a write is one of the controllers. Others
	// succeed.
	controllers func(action clienttesting.Action) bool

	mu     sync.Mutex // guards random
	random *rand.Rand
}

// Fault starts the faults of a seed. It must be called before Run, and after
// the test has added its own reactors.
func (c *Cluster) Fault(seed uint64, controllers func(action clienttesting.Action) bool) *Faults {
	f := &Faults{c: c, controllers: controllers, random: rand.New(rand.NewPCG(seed, 0))}
	c.Fake.PrependReactor("delete", "pods", f.delete)
	c.Fake.PrependReactor("patch", "pods", f.patch)
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		c.Fake.PrependReactor(verb, "*", f.fail)
	}
	c.Fake.PrependWatchReactor("*", f.watch)
	return f
}

// Below returns a random number that is at least 0 and less than n.
func (f *Faults) Below(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

// MaxDelay bounds the time by which an event is late.
const MaxDelay = 1500 * time.Millisecond

// lateWatch is a watch whose events come late, in their order.
type lateWatch struct {
	watch.Interface
	events chan watch.Event
}

// ResultChan implements watch.Interface.
func (w lateWatch) ResultChan() <-chan watch.Event { return w.events }

func (f *Faults) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	w, err := f.c.watch(action)
	if err != nil {
		return true, nil, err
	}
	// A watch of the fake holds only few events.
	type timed struct {
		watch.Event
		due time.Time
	}
	received, late := make(chan timed, 10000), lateWatch{w, make(chan watch.Event, 10000)}
	go func() {
		defer close(received)
		for e := range w.ResultChan() {
			due := time.Now()
			if f.Below(3) == 0 {
				due = due.Add(time.Duration(f.Below(int(MaxDelay))))
			}
			received <- timed{e, due}
		}
	}()
	go func() {
		defer close(late.events)
		for e := range received {
			time.Sleep(time.Until(e.due))
			late.events <- e.Event
		}
	}()
	return true, late, nil
}

// fail lets one of fifteen writes fail.
func (f *Faults) fail(action clienttesting.Action) (bool, runtime.Object, error) {
	if !f.controllers(action) || f.Below(15) > 0 {
		return false, nil, nil
	}
	resource := action.GetResource().GroupResource()
	if f.Below(2) == 0 {
		return true, nil, apierrors.NewConflict(resource, "", errors.New("changed"))
	}
	return true, nil, apierrors.NewServerTimeout(resource, action.GetVerb(), 1)
}

// delete marks a pod with finalizers for deletion.
func (f *Faults) delete(action clienttesting.Action) (bool, runtime.Object, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	o, err := f.c.Fake.Tracker().Get(action.GetResource(), action.GetNamespace(), action.(clienttesting.DeleteAction).GetName())
	if err != nil {
		return true, nil, err
	}
	p := o.(*v1.Pod).DeepCopy()
	if len(p.Finalizers) == 0 || p.DeletionTimestamp != nil {
		return len(p.Finalizers) > 0, nil, nil
	}
	now := metav1.Now()
	p.DeletionTimestamp = &now
	f.c.setMetadata(p)
	return true, nil, f.c.Fake.Tracker().Update(action.GetResource(), p, p.Namespace)
}

// patch rejects a patch for another version of a pod, and deletes a pod that loses
// its last finalizer.
func (f *Faults) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchAction)
	var want metav1.PartialObjectMetadata
	if err := json.Unmarshal(patch.GetPatch(), &want); err != nil {
		return true, nil, err
	}
	current, err := f.c.Fake.Tracker().Get(action.GetResource(), action.GetNamespace(), patch.GetName())
	if err != nil {
		return true, nil, err
	}
	if v := want.ResourceVersion; v != "" && v != current.(metav1.Object).GetResourceVersion() {
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), patch.GetName(), errors.New("changed"))
	}
	handled, o, err := f.c.patch(action)
	if p, ok := o.(*v1.Pod); err == nil && ok && p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
		err = f.c.Fake.Tracker().Delete(action.GetResource(), p.Namespace, p.Name)
	}
	return handled, o, err
}
