package eventrecorder

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Messages that quote what a pod names are shortened before they are queued.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, write := range map[string]func(r record.EventRecorder){
		"Event":  func(r record.EventRecorder) { r.Event(&v1.Pod{}, v1.EventTypeNormal, "Pulling", long) },
		"Eventf": func(r record.EventRecorder) { r.Eventf(&v1.Pod{}, v1.EventTypeNormal, "Pulling", "%s%%", long) },
		"AnnotatedEventf": func(r record.EventRecorder) {
			r.AnnotatedEventf(&v1.Pod{}, nil, v1.EventTypeNormal, "Pulling", "%s%%", long)
		},
	} {
		queued := record.NewFakeRecorder(1)
		write(&Recorder{queued})
		if event := <-queued.Events; len(event) > maxMessage+100 || !strings.HasSuffix(event, "xxx...") {
			t.Errorf("%s: an event of %d bytes, ending in %q", name, len(event), event[len(event)-6:])
		}
	}
}

// about returns the number-th event about an object.
func about(object, number, size int) *v1.Event {
	return &v1.Event{
		InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: types.UID(fmt.Sprint(object))},
		Type:           v1.EventTypeWarning, Reason: "Unhealthy", Message: fmt.Sprint(number, " ", strings.Repeat("x", size)),
	}
}

// Of very many events with long messages about very many objects, few are remembered.
func TestRememberedEventsAreBounded(t *testing.T) {
	const (
		objects, messages, size = 2 * maxRemembered, 9, 4 << 10
		most                    = 2 * maxRemembered * size // client-go's recorder keeps ten times as much
	)
	inUse := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := inUse()
	correlator := record.NewEventCorrelatorWithOptions(correlation())
	for object := range objects {
		for number := range messages {
			if _, err := correlator.EventCorrelate(about(object, number, size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if kept := int64(inUse()) - int64(before); kept > most {
		t.Errorf("%d bytes are kept of %d events, want at most %d", kept, objects*messages, most)
	}
	runtime.KeepAlive(correlator)
}

// Events about an object that differ in their messages are combined, from the tenth on,
// and equal ones are counted.
func TestSimilarEventsAreCombined(t *testing.T) {
	correlator := record.NewEventCorrelatorWithOptions(correlation())
	correlate := func(number int) *v1.Event {
		t.Helper()
		result, err := correlator.EventCorrelate(about(0, number, 10))
		if err != nil || result.Event == nil {
			t.Fatalf("event %d: %+v, %v", number, result, err)
		}
		return result.Event
	}
	correlate(0)
	if again := correlate(0); again.Count != 2 {
		t.Errorf("an equal event is counted %d times", again.Count)
	}
	for number := 1; number < 12; number++ {
		combined := strings.HasPrefix(correlate(number).Message, "(combined from similar events): ")
		if want := number >= 9; combined != want {
			t.Errorf("event %d is combined: %v", number, combined)
		}
	}
}
