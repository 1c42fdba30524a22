package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// nodeSelectorAnnotation of a namespace is the node selector of its pods.
const nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"

// defaultNodeSelector is the name of the node selector for the pods of namespaces
// without the annotation, in the plugin's configuration.
const defaultNodeSelector = "clusterDefaultNodeSelector"

// podNodeSelector adds the node selector of the namespace to pods, and refuses
// pods with another value of a label, or with a label that the configuration does
// not allow in the namespace.
type podNodeSelector struct {
	onCreate
	namespaces fresh[*corev1.Namespace]
	// configured has the default node selector, and the labels that a namespace
	// allows, by its name.
	configured map[string]labels.Set
}

func newPodNodeSelector(c *Config) admission.Interface {
	return podNodeSelector{
		namespaces: freshOf[*corev1.Namespace](c, objects.Namespaces),
		configured: c.Configured["PodNodeSelector"].nodeSelectors,
	}
}

// readNodeSelectors reads the configuration of the plugin: node selectors by
// namespace, below podNodeSelectorPluginConfig. It has no version.
func readNodeSelectors(raw []byte) (map[string]labels.Set, error) {
	var file struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	all := map[string]labels.Set{}
	for namespace, text := range file.Selectors {
		selector, err := labels.ConvertSelectorToLabelsMap(text)
		if err != nil {
			return nil, fmt.Errorf("podNodeSelectorPluginConfig[%s]: %w", namespace, err)
		}
		all[namespace] = selector
	}
	return all, nil
}

func (p podNodeSelector) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, selector, err := p.find(ctx, a)
	if err == nil && len(selector) > 0 {
		pod.Spec.NodeSelector = labels.Merge(selector, pod.Spec.NodeSelector)
	}
	return err
}

func (p podNodeSelector) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, _, err := p.find(ctx, a)
	if err != nil || pod == nil {
		return err
	}
	allowed := p.configured[a.GetNamespace()]
	if len(allowed) == 0 {
		return nil
	}
	for name, value := range pod.Spec.NodeSelector {
		if have, ok := allowed[name]; !ok || have != value {
			return refused(a, "pod node label selector labels conflict with its namespace whitelist")
		}
	}
	return nil
}

// find returns the pod of a write and the node selector of its namespace, unless
// they conflict. The pod is nil for other writes.
func (p podNodeSelector) find(ctx context.Context, a admission.Attributes) (*corev1.Pod, labels.Set, error) {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !is(a, "", "pods", "") {
		return nil, nil, nil
	}
	ns, err := namespaceOf(ctx, a, p.namespaces)
	if err != nil {
		return nil, nil, err
	}
	selector := p.configured[defaultNodeSelector]
	if text, ok := ns.Annotations[nodeSelectorAnnotation]; ok {
		if selector, err = labels.ConvertSelectorToLabelsMap(text); err != nil {
			return nil, nil, fmt.Errorf("the annotation %s of namespace %s: %w", nodeSelectorAnnotation, ns.Name, err)
		}
	}
	if labels.Conflicts(selector, pod.Spec.NodeSelector) {
		return nil, nil, refused(a, "pod node label selector conflicts with its namespace node label selector")
	}
	return pod, selector, nil
}
