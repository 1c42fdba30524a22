package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// eventsWaiting and eventsUnderWay bound the events that are still to be
	// written, and those that were begun. More are dropped, as client-go does.
	eventsWaiting  = 10_000
	eventsUnderWay = 1000
	// eventRequests bounds the requests at a time. They are few, so that events
	// of pods that were bound do not hold up the bindings of others.
	eventRequests = 8
	// eventTries is the number of attempts to write an event while the API
	// server does not answer, and eventPause the time between them.
	eventTries = 12
	eventPause = 10 * time.Second
	// seriesEnd is how long after its last observation an event may repeat as
	// part of a series, and seriesSweep how often that is looked at.
	seriesEnd   = 6 * time.Minute
	seriesSweep = time.Minute
	// seriesCount bounds the events that are remembered.
	seriesCount = 100_000
)

// recorder writes events about pods, which repeat as series (KEP-383).
//
//	event ─► waiting ─► run: new? ─► create
//	                         2nd? ─► patch: series of 2
//	                         later ─► count; patched once it has ended
//
// It keeps only a few numbers for each event. client-go's recorder keeps whole
// events for six to twelve minutes, which at thousands of pods a second fill
// the memory, and after a load hold on to the pages that they lie in.
type recorder struct {
	client     kubernetes.Interface
	controller string
	instance   string
	waiting    chan *eventsv1.Event
	under      chan struct{}
	requests   chan struct{}
	seed       maphash.Seed
}

// series holds when and how often an event occurred. It has no pointers unless it
// repeats.
type series struct {
	first, last int64 // nanoseconds; the event is named for the first
	count       int32
	repeats     *eventsv1.Event // of the second time; nil before
}

func newRecorder(client kubernetes.Interface, controller string) *recorder {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown"
	}
	return &recorder{
		client: client, controller: controller, instance: controller + "-" + hostname,
		waiting: make(chan *eventsv1.Event, eventsWaiting), under: make(chan struct{}, eventsUnderWay),
		requests: make(chan struct{}, eventRequests), seed: maphash.MakeSeed(),
	}
}

// Eventf records what happened to a pod, without waiting. related may be nil.
func (r *recorder) Eventf(pod, related *v1.Pod, kind, reason, action, note string, args ...any) {
	now := time.Now()
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: util.GenerateEventName(pod.Name, now.UnixNano()), Namespace: pod.Namespace},
		EventTime:           metav1.MicroTime{Time: now},
		ReportingController: r.controller,
		ReportingInstance:   r.instance,
		Action:              action,
		Reason:              reason,
		Regarding:           podReference(pod),
		Note:                fmt.Sprintf(note, args...),
		Type:                kind,
	}
	if related != nil {
		e.Related = new(podReference(related))
	}
	select {
	case r.waiting <- e:
	default:
	}
}

// truncateMessage shortens a message to what the note of an event may have.
func truncateMessage(message string) string {
	const limit, end = 1024, " ..."
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit-len(end)], "") + end
}

func podReference(pod *v1.Pod) v1.ObjectReference {
	return v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
}

// run writes events until ctx ends.
func (r *recorder) run(ctx context.Context) {
	seen := map[uint64]series{}
	sweep := time.NewTicker(seriesSweep)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.waiting:
			r.write(ctx, r.observe(seen, e))
		case now := <-sweep.C:
			for key, s := range seen {
				if now.UnixNano()-s.last < int64(seriesEnd) {
					continue
				}
				if delete(seen, key); s.count > 2 {
					r.write(ctx, s.repeated())
				}
			}
		}
	}
}

// observe remembers an event, and returns what is to be written of it, or nil.
func (r *recorder) observe(seen map[uint64]series, e *eventsv1.Event) *eventsv1.Event {
	related := types.UID("")
	if e.Related != nil {
		related = e.Related.UID
	}
	key := maphash.Comparable(r.seed, [...]string{string(e.Regarding.UID), string(related), e.Type, e.Reason, e.Action})
	at := e.EventTime.UnixNano()
	s, ok := seen[key]
	switch {
	case !ok && len(seen) < seriesCount:
		seen[key] = series{first: at, last: at, count: 1}
		return e
	case !ok:
		return e
	}
	s.last, s.count = at, s.count+1
	if s.repeats == nil {
		s.repeats = e
		e.Name = util.GenerateEventName(e.Regarding.Name, s.first)
		e.EventTime = metav1.MicroTime{Time: time.Unix(0, s.first)}
	}
	seen[key] = s
	if s.count == 2 {
		return s.repeated()
	}
	return nil
}

// repeated is the event with its series as it is now.
func (s *series) repeated() *eventsv1.Event {
	e := *s.repeats
	e.Series = &eventsv1.EventSeries{Count: s.count, LastObservedTime: metav1.MicroTime{Time: time.Unix(0, s.last)}}
	return &e
}

// write begins to write an event. It waits while too many are under way.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	if e == nil {
		return
	}
	select {
	case r.under <- struct{}{}:
	case <-ctx.Done():
		return
	}
	supervise.Go(ctx, func() {
		defer func() { <-r.under }()
		for try := 1; ; try++ {
			err := r.try(ctx, e)
			switch {
			case err == nil || ctx.Err() != nil:
				return
			case try == eventTries || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
				klog.FromContext(ctx).Error(err, "Cannot write an event", "pod", klog.KRef(e.Regarding.Namespace, e.Regarding.Name), "reason", e.Reason)
				return
			}
			supervise.Pause(ctx, eventPause)
		}
	})
}

// try creates an event, or patches its series. It creates an event again that
// has expired.
func (r *recorder) try(ctx context.Context, e *eventsv1.Event) error {
	select {
	case r.requests <- struct{}{}:
		defer func() { <-r.requests }()
	case <-ctx.Done():
		return ctx.Err()
	}
	events := r.client.EventsV1().Events(e.Namespace)
	if e.Series != nil {
		patch, err := json.Marshal(map[string]any{"series": e.Series})
		if err != nil {
			return err
		}
		if _, err = events.Patch(ctx, e.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := events.Create(ctx, e, metav1.CreateOptions{})
	return err
}
