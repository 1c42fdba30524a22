// Package defaultbinder writes bindings to the API.
package defaultbinder

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Name is the plugin's name in configurations.
const Name = "DefaultBinder"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.Factory{Name: Name, New: func(_ context.Context, _ any, h *framework.Handle) (framework.Plugin, error) {
		return &plugin{h.Client}, nil
	}}
}

type plugin struct{ client kubernetes.Interface }

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// Bind implements framework.BindPlugin. The UID keeps it from binding another
// pod of the same name. Errors that may pass, such as of an API server that
// restarts, are retried for a moment: one pod of a gang that is not bound keeps
// the others from their work.
func (p *plugin) Bind(ctx context.Context, _ *framework.CycleState, pod *framework.PodInfo, node string) *framework.Status {
	pods := p.client.CoreV1().Pods(pod.Pod.Namespace)
	tried := false
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return ctx.Err() == nil && isTransient(err) }, func() error {
		err := pods.Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Pod.Namespace, Name: pod.Pod.Name, UID: pod.Pod.UID},
			Target:     v1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
		if tried && apierrors.IsConflict(err) { // the try before may have had its effect
			if now, getErr := pods.Get(ctx, pod.Pod.Name, metav1.GetOptions{}); getErr == nil && now.UID == pod.Pod.UID && now.Spec.NodeName == node {
				return nil
			}
		}
		tried = true
		return err
	})
	return framework.AsStatus(Name, err)
}

// isTransient reports whether a request may succeed when it is repeated.
func isTransient(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || utilnet.IsConnectionRefused(err)
}

// EventsToRegister implements framework.EnqueueExtensions: it rejects no pod.
func (*plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return nil, nil
}
