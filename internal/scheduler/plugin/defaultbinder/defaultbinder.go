// Package defaultbinder writes bindings to the API.
package defaultbinder

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
// pod of the same name.
func (p *plugin) Bind(ctx context.Context, _ *framework.CycleState, pod *framework.PodInfo, node string) *framework.Status {
	return framework.AsStatus(Name, p.client.CoreV1().Pods(pod.Pod.Namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Pod.Namespace, Name: pod.Pod.Name, UID: pod.Pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
}

// EventsToRegister implements framework.EnqueueExtensions: it rejects no pod.
func (*plugin) EventsToRegister(context.Context) ([]framework.ClusterEventWithHint, error) {
	return nil, nil
}
