package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// nodeSelectorAnnotation of a namespace is the node selector of its pods.
const nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"

// podNodeSelector adds the node selector of the namespace to pods, and refuses
// pods with another value of a label.
type podNodeSelector struct {
	onCreate
	namespaces objects.Reader[*corev1.Namespace]
	refresh    func(context.Context) error
}

func newPodNodeSelector(c *Config) admission.Interface {
	return podNodeSelector{namespaces: objects.Of[*corev1.Namespace](c.Objects, objects.Namespaces), refresh: c.Refresh}
}

func (p podNodeSelector) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, selector, err := p.find(ctx, a)
	if err == nil && len(selector) > 0 {
		pod.Spec.NodeSelector = labels.Merge(selector, pod.Spec.NodeSelector)
	}
	return err
}

func (p podNodeSelector) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	_, _, err := p.find(ctx, a)
	return err
}

// find returns the pod of a write and the node selector of its namespace, unless
// they conflict. The selector is empty for other writes.
func (p podNodeSelector) find(ctx context.Context, a admission.Attributes) (*corev1.Pod, labels.Set, error) {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil, nil, nil
	}
	ns, err := namespaceOf(ctx, a, p.namespaces, p.refresh)
	if err != nil {
		return nil, nil, err
	}
	selector, err := labels.ConvertSelectorToLabelsMap(ns.Annotations[nodeSelectorAnnotation])
	if err != nil {
		return nil, nil, fmt.Errorf("the annotation %s of namespace %s: %w", nodeSelectorAnnotation, ns.Name, err)
	}
	if labels.Conflicts(selector, pod.Spec.NodeSelector) {
		return nil, nil, refused(a, "pod node label selector conflicts with its namespace node label selector")
	}
	return pod, selector, nil
}
