package eventrecorder

import (
	"fmt"
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
		Type:           v1.EventTypeWarning, Reason: "Unhealthy", Count: 1, Message: fmt.Sprint(number, " ", strings.Repeat("x", size)),
	}
}

// Of very many events, few are remembered, and of the messages of similar ones hashes.
func TestRememberedEventsAreBounded(t *testing.T) {
	const remembered = 100
	correlator := record.NewEventCorrelatorWithOptions(correlation(remembered))
	count := func(object int) int32 {
		t.Helper()
		result, err := correlator.EventCorrelate(about(object, 0, 10))
		if err != nil || result.Event == nil {
			t.Fatalf("object %d: %+v, %v", object, result, err)
		}
		return result.Event.Count
	}
	if first, again := count(0), count(0); first != 1 || again != 2 {
		t.Errorf("equal events are counted as %d and %d", first, again)
	}
	for object := 1; object <= remembered; object++ {
		count(object)
	}
	if n := count(0); n != 1 {
		t.Errorf("an event before %d others is remembered: count %d", remembered, n)
	}
	if _, message := byReason(about(0, 0, 4<<10)); len(message) > 32 {
		t.Errorf("%d bytes of a message are remembered", len(message))
	}
}

// Events about an object that differ in their messages are combined, from the tenth on,
// and equal ones are counted.
func TestSimilarEventsAreCombined(t *testing.T) {
	correlator := record.NewEventCorrelatorWithOptions(correlation(0))
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
