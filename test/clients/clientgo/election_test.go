package clientgo

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

// TestLeaderElection elects one of two candidates by a Lease. The other one
// follows when the first releases the Lease.
func TestLeaderElection(t *testing.T) {
	c := newClient(t)
	ns := newNamespace(t, c)
	leading := make(chan string, 2)
	var wg sync.WaitGroup
	stand := func(id string) context.CancelFunc {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: ns, Name: "leader"}, Client: c.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: id},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 100 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leading <- id },
				OnStoppedLeading: func() {},
			},
		})
		must(t, err)
		wg.Go(func() { elector.Run(ctx) })
		return cancel
	}
	defer wg.Wait()
	stopOne := stand("one")
	defer stopOne()
	if id := <-leading; id != "one" {
		t.Fatalf("%s leads, want one", id)
	}
	stopTwo := stand("two")
	defer stopTwo()
	lease, err := c.CoordinationV1().Leases(ns).Get(t.Context(), "leader", metav1.GetOptions{})
	must(t, err)
	if *lease.Spec.HolderIdentity != "one" || *lease.Spec.LeaseTransitions != 0 {
		t.Errorf("lease: %+v", lease.Spec)
	}
	stopOne()
	if id := <-leading; id != "two" {
		t.Fatalf("%s leads, want two", id)
	}
}

// TestEventBroadcaster records the same event three times and gets one event
// with the count 3.
func TestEventBroadcaster(t *testing.T) {
	c := newClient(t)
	ns := newNamespace(t, c)
	cm := observed(t, c, ns)
	b := record.NewBroadcaster()
	defer b.Shutdown()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.CoreV1().Events("")})
	recorder := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "tests"})
	for range 3 {
		recorder.Eventf(cm, corev1.EventTypeNormal, "Seen", "saw %s", cm.Name)
	}
	eventually(t, "the event is counted three times", func(ctx context.Context) error {
		list, err := c.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=seen,reason=Seen,source=tests"})
		if err != nil || len(list.Items) != 1 || list.Items[0].Count != 3 || list.Items[0].Message != "saw seen" {
			return fmt.Errorf("%v %w", list, err)
		}
		return nil
	})
}

// TestEventSeries records events in events.k8s.io/v1. A repetition starts a
// series, and core/v1 shows the same event.
func TestEventSeries(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	cm := observed(t, c, ns)
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.EventsV1()})
	defer b.Shutdown()
	must(t, b.StartRecordingToSinkWithContext(ctx))
	recorder := b.NewRecorder(scheme.Scheme, "example.com/tests")
	var made *eventsv1.Event
	find := func(want func(*eventsv1.Event) bool) func(context.Context) error {
		return func(ctx context.Context) error {
			list, err := c.EventsV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=seen,reportingController=example.com/tests"})
			if err != nil || len(list.Items) != 1 || !want(&list.Items[0]) {
				return fmt.Errorf("%v %w", list, err)
			}
			made = &list.Items[0]
			return nil
		}
	}
	recorder.Eventf(cm, nil, corev1.EventTypeNormal, "Seen", "Looking", "saw %s", cm.Name)
	eventually(t, "the event exists", find(func(e *eventsv1.Event) bool { return e.Series == nil && e.Note == "saw seen" && e.Action == "Looking" }))
	recorder.Eventf(cm, nil, corev1.EventTypeNormal, "Seen", "Looking", "saw %s", cm.Name)
	eventually(t, "the event has a series", find(func(e *eventsv1.Event) bool { return e.Series != nil && e.Series.Count == 2 }))
	old, err := c.CoreV1().Events(ns).Get(ctx, made.Name, metav1.GetOptions{})
	must(t, err)
	if old.Message != "saw seen" || old.ReportingController != "example.com/tests" || old.InvolvedObject.UID != cm.UID || old.Series == nil {
		t.Errorf("as core/v1: %+v", old)
	}
}

// observed creates the object that the events refer to.
func observed(t *testing.T, c kubernetes.Interface, ns string) *corev1.ConfigMap {
	t.Helper()
	cm, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap("seen", nil), metav1.CreateOptions{})
	must(t, err)
	return cm
}
