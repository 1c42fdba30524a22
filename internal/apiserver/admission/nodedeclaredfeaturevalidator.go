package admission

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	features "k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	kubernetes "github.com/coracle-io/coracle/internal/version"
)

// nodeDeclaredFeatureValidator refuses updates of pods for which their nodes do
// not declare the feature of the kubelet (KEP-5328).
type nodeDeclaredFeatureValidator struct {
	onUpdate
	nodes  objects.Reader[*corev1.Node]
	target *version.Version
}

func newNodeDeclaredFeatureValidator(c *Config) admission.Interface {
	return nodeDeclaredFeatureValidator{
		nodes:  objects.Of[*corev1.Node](c.Objects, objects.Nodes),
		target: version.MustParseSemantic(kubernetes.Kubernetes),
	}
}

func (p nodeDeclaredFeatureValidator) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, "", "pods", "") && !is(a, "", "pods", "resize") {
		return nil
	}
	old, pod, err := changeOnNode(a)
	if err != nil || pod == nil {
		return err
	}
	required, err := features.DefaultFramework.InferForPodUpdate(
		&features.PodInfo{Spec: &old.Spec, Status: &old.Status}, &features.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, p.target)
	if err != nil {
		return refused(a, "failed to infer pod capability requirements: %w", err)
	}
	if required.IsEmpty() {
		return nil
	}
	node, ok := p.nodes.Get("", pod.Spec.NodeName)
	if !ok {
		return refused(a, "node %q not found", pod.Spec.NodeName)
	}
	result, err := features.DefaultFramework.MatchNode(required, node)
	if err != nil {
		return refused(a, "failed to match pod requirements against node %q: %w", node.Name, err)
	}
	if !result.IsMatch {
		return refused(a, "pod update requires features %s which are not available on node %q", strings.Join(result.UnsatisfiedRequirements, ", "), node.Name)
	}
	return nil
}
