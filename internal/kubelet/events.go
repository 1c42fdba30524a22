package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/coracle-io/coracle/internal/eventrecorder"
)

// rememberedEvents is how many events are remembered to count those that repeat: 16 MiB
// with the longest messages.
const rememberedEvents = 1024

// startEvents writes the events of a recorder to the API server, if there is one, until
// stop is called.
func startEvents(ctx context.Context, r *eventrecorder.Recorder, c *Config) (stop func()) {
	broadcaster := eventrecorder.NewBroadcaster(ctx, rememberedEvents)
	if c.Client != nil {
		events := c.Client.Kubernetes.CoreV1().Events("")
		broadcaster.StartRecordingToSink(newEventSink(ctx, events, *c.Configuration.EventRecordQPS, c.Configuration.EventBurst))
	}
	r.EventRecorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: c.NodeName})
	return broadcaster.Shutdown
}

// eventSink writes events to the API server within a rate limit. Events wait for
// the limit; the recorder drops events while too many wait.
type eventSink struct {
	record.EventSink
	turn func() error
}

// newEventSink returns a sink for perSecond events a second and bursts of burst
// events; 0 means no limit. Writing ends with ctx.
func newEventSink(ctx context.Context, events typedv1.EventInterface, perSecond, burst int32) record.EventSink {
	sink := record.EventSink(&typedv1.EventSinkImpl{Interface: events})
	if perSecond <= 0 {
		return &eventSink{EventSink: sink, turn: ctx.Err}
	}
	limiter := flowcontrol.NewTokenBucketRateLimiter(float32(perSecond), int(max(burst, 1)))
	return &eventSink{EventSink: sink, turn: func() error { return limiter.Wait(ctx) }}
}

// Create implements record.EventSink.
func (s *eventSink) Create(event *v1.Event) (*v1.Event, error) {
	if err := s.turn(); err != nil {
		return nil, err
	}
	return s.EventSink.Create(event)
}

// Patch implements record.EventSink.
func (s *eventSink) Patch(old *v1.Event, data []byte) (*v1.Event, error) {
	if err := s.turn(); err != nil {
		return nil, err
	}
	return s.EventSink.Patch(old, data)
}
