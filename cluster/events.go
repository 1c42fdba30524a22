package cluster

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/supervise"
)

// events tell of components that fail, as Events about the node, or about
// kube-system where there is none.
type events struct {
	about   *v1.ObjectReference
	pending chan supervise.Component
}

// pendingEvents is how many changes wait to be told, at most; those that find
// no room are in the log and in the status alone.
const pendingEvents = 100

func newEvents(nodeName string, withoutNode bool) *events {
	about := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: types.UID(nodeName)}
	if withoutNode {
		about = &v1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem, Namespace: metav1.NamespaceSystem}
	}
	return &events{about: about, pending: make(chan supervise.Component, pendingEvents)}
}

// changed notes a change of a component's phase that users should hear of.
func (e *events) changed(c supervise.Component) {
	if c.Phase != supervise.BackOff && (c.Phase != supervise.Running || c.Restarts == 0) {
		return
	}
	select {
	case e.pending <- c:
	default:
	}
}

// run writes the events until ctx ends.
func (e *events) run(ctx context.Context, kube kubernetes.Interface) error {
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "coracle"})
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-e.pending:
			kind, reason, message := describe(c)
			recorder.Event(e.about, kind, reason, message)
		}
	}
}

// describe puts a change of a component's phase into words.
func describe(c supervise.Component) (kind, reason, message string) {
	switch {
	case c.Phase == supervise.Running:
		return v1.EventTypeNormal, "ComponentRestarted", fmt.Sprintf("Component %s was started again", c.Name)
	case c.Panicked:
		return v1.EventTypeWarning, "ComponentPanicked", fmt.Sprintf("Component %s ended: %s", c.Name, c.LastError)
	}
	return v1.EventTypeWarning, "ComponentFailed", fmt.Sprintf("Component %s ended: %s", c.Name, c.LastError)
}
