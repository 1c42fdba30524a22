package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// TestEventsRepeatAsSeries: the first two times are written at once, later
// ones are counted and written when the series has ended.
func TestEventsRepeatAsSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := newFake()
		r := newRecorder(client, "test")
		go r.run(t.Context())
		written := func() []eventsv1.Event {
			synctest.Wait()
			list, err := client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return list.Items
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
		fail := func() {
			r.Eventf(pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", "no node")
			time.Sleep(time.Second)
		}
		fail()
		if all := written(); len(all) != 1 || all[0].Series != nil {
			t.Fatalf("after the first: %v", all)
		}
		fail()
		if all := written(); len(all) != 1 || all[0].Series == nil || all[0].Series.Count != 2 {
			t.Fatalf("after the second: %v", all)
		}
		for range 5 {
			fail()
		}
		if all := written(); len(all) != 1 || all[0].Series.Count != 2 {
			t.Fatalf("while it repeats: %v", all)
		}
		time.Sleep(seriesEnd + seriesSweep)
		if all := written(); len(all) != 1 || all[0].Series.Count != 7 {
			t.Fatalf("after its end: %v", all)
		}
		fail()
		if all := written(); len(all) != 2 {
			t.Fatalf("once more: %v", all)
		}
	})
}

// TestRememberedEventsAreBounded: whatever the number of pods.
func TestRememberedEventsAreBounded(t *testing.T) {
	r := newRecorder(&fake.Clientset{}, "test")
	seen := make(map[uint64]series, seriesCount)
	for i := range uint64(seriesCount) {
		seen[i] = series{}
	}
	e := &eventsv1.Event{Regarding: v1.ObjectReference{UID: "another"}}
	if r.observe(seen, e) != e || len(seen) > seriesCount {
		t.Errorf("%d events are remembered, want at most %d", len(seen), seriesCount)
	}
}
