package cluster

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/supervise"
)

// events writes Events when components fail, about the node, or about
// kube-system if there is no node.
type events struct {
	about   *v1.ObjectReference
	pending chan supervise.Component
}

// pendingEvents bounds how many changes wait to be written. Further ones are
// only in the log and in the status.
const pendingEvents = 100

func newEvents(nodeName string, withoutNode bool) *events {
	about := &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: types.UID(nodeName)}
	if withoutNode {
		about = &v1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem, Namespace: metav1.NamespaceSystem}
	}
	return &events{about: about, pending: make(chan supervise.Component, pendingEvents)}
}

// changed queues a change of a component's phase if users should know it. It
// does not block.
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
	recorder, shutdown := controller.NewRecorder(ctx, kube, v1.EventSource{Component: "coracle"})
	defer shutdown()
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

// describe returns the Event for a change of a component's phase.
func describe(c supervise.Component) (kind, reason, message string) {
	switch {
	case c.Phase == supervise.Running:
		return v1.EventTypeNormal, "ComponentRestarted", fmt.Sprintf("Component %s was started again", c.Name)
	case c.Panicked:
		return v1.EventTypeWarning, "ComponentPanicked", fmt.Sprintf("Component %s ended: %s", c.Name, c.LastError)
	}
	return v1.EventTypeWarning, "ComponentFailed", fmt.Sprintf("Component %s ended: %s", c.Name, c.LastError)
}
