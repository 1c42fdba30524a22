package controller

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/eventrecorder"
)

// NewRecorder returns a recorder that writes Events in the background, until
// shutdown is called. It does not end with ctx, because a component that ends
// records Events, too.
func NewRecorder(ctx context.Context, kube kubernetes.Interface, source v1.EventSource) (events record.EventRecorder, shutdown func()) {
	broadcaster := eventrecorder.NewBroadcaster(context.WithoutCancel(ctx), 0) // thousands of claims may wait
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	return &eventrecorder.Recorder{EventRecorder: broadcaster.NewRecorder(scheme.Scheme, source)}, broadcaster.Shutdown
}
