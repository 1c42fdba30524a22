// Package eventrecorder bounds what recorders of Events keep. Whoever creates objects
// chooses how many there are, and often how long the messages about them are. The
// recorder of client-go remembers 4,096 events, and ten messages about each object, to
// count those that repeat.
package eventrecorder

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// maxMessage bounds the message of an event, in bytes. It may quote what a container
// wrote, the command that it was to run, or all errors in a template.
const maxMessage = 16 << 10

// Recorder shortens messages before they are queued, and remembered to aggregate
// events.
type Recorder struct{ record.EventRecorder }

// Event implements record.EventRecorder.
func (r *Recorder) Event(object runtime.Object, eventType, reason, message string) {
	r.EventRecorder.Event(object, eventType, reason, shortened(message))
}

// Eventf implements record.EventRecorder.
func (r *Recorder) Eventf(object runtime.Object, eventType, reason, format string, arguments ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, arguments...))
}

// AnnotatedEventf implements record.EventRecorder.
func (r *Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, arguments ...any) {
	r.EventRecorder.AnnotatedEventf(object, annotations, eventType, reason, "%s", shortened(fmt.Sprintf(format, arguments...)))
}

func shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}

// NewBroadcaster returns a broadcaster for recorders, which does not end before its
// shutdown. It counts events that repeat, and combines similar ones, as that of client-go
// does. For that it remembers a number of events, 0 for client-go's 4,096. Each takes up
// to 16 KiB.
func NewBroadcaster(ctx context.Context, remembered int) record.EventBroadcaster {
	return record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(correlation(remembered)))
}

func correlation(remembered int) record.CorrelatorOptions {
	return record.CorrelatorOptions{LRUCacheSize: remembered, KeyFunc: byReason}
}

// byReason groups events as record.EventAggregatorByReasonFunc does. Hashes stand for
// the messages of a group.
func byReason(event *v1.Event) (group, message string) {
	group, message = record.EventAggregatorByReasonFunc(event)
	sum := sha256.Sum256([]byte(message))
	return group, string(sum[:])
}
