package kubelet

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
)

// maxEventMessage bounds the message of an event, which may quote what a
// container wrote or the command that it was to run.
const maxEventMessage = 16 << 10

// recorder records events of the kubelet and its pods once it has been started.
// It shortens messages before they are queued, and remembered to aggregate
// events: a pod chooses how long its commands and image names are.
type recorder struct{ record.EventRecorder }

// Event implements record.EventRecorder.
func (r *recorder) Event(object runtime.Object, eventType, reason, message string) {
	r.EventRecorder.Event(object, eventType, reason, shortened(message))
}

// Eventf implements record.EventRecorder.
func (r *recorder) Eventf(object runtime.Object, eventType, reason, format string, arguments ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, arguments...))
}

// AnnotatedEventf implements record.EventRecorder.
func (r *recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, arguments ...any) {
	r.EventRecorder.AnnotatedEventf(object, annotations, eventType, reason, "%s", shortened(fmt.Sprintf(format, arguments...)))
}

func shortened(message string) string {
	if len(message) <= maxEventMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxEventMessage], "") + "..."
}

// start writes events to the API server, if there is one, until stop is called.
func (r *recorder) start(ctx context.Context, c *Config) (stop func()) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
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
