package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	podresource "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// podResizeValidator refuses resizes of pods to more than their node has, and
// on nodes that cannot resize. The kubelet would report them as infeasible.
type podResizeValidator struct {
	onUpdate
	nodes objects.Reader[*corev1.Node]
}

func newPodResizeValidator(c *Config) admission.Interface {
	return podResizeValidator{nodes: objects.Of[*corev1.Node](c.Objects, objects.Nodes)}
}

// The causes of a refusal, by which autoscalers tell them apart.
const (
	resizeNodeCapacity metav1.CauseType = "NodeCapacity"
	resizeUnsupported  metav1.CauseType = "UnsupportedPlatform"
)

func (p podResizeValidator) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !is(a, "", "pods", "resize") {
		return nil
	}
	_, pod, err := changeOnNode(a)
	if err != nil || pod == nil {
		return err
	}
	node, ok := p.nodes.Get("", pod.Spec.NodeName)
	if !ok {
		return refused(a, "node %q not found", pod.Spec.NodeName)
	}
	if system, labelled := node.Labels[corev1.LabelOSStable]; labelled && system != string(corev1.Linux) {
		return refusedResize(a, resizeUnsupported, fmt.Sprintf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system))
	}
	if missing := beyondAllocatable(pod, node); len(missing) > 0 {
		return refusedResize(a, resizeNodeCapacity, "node didn't have enough allocatable resources: "+strings.Join(missing, "; "))
	}
	return nil
}

// changeOnNode returns a pod before and after an update, if it is on a node and the
// update changes its specification, and nil otherwise.
func changeOnNode(a admission.Attributes) (old, pod *corev1.Pod, err error) {
	pod, err = typed[*corev1.Pod](a, a.GetObject())
	if err != nil {
		return nil, nil, err
	}
	old, err = typed[*corev1.Pod](a, a.GetOldObject())
	if err != nil {
		return nil, nil, err
	}
	if pod.Spec.NodeName == "" || pod.Generation == old.Generation { // the spec is the same
		return nil, nil, nil
	}
	return old, pod, nil
}

// beyondAllocatable returns what a pod requests of CPU, in thousandths, and of
// memory, in bytes, beyond all that the node has for pods.
func beyondAllocatable(pod *corev1.Pod, node *corev1.Node) []string {
	requests, allocatable := podresource.PodRequests(pod, podresource.PodResourcesOptions{}), node.Status.Allocatable
	var missing []string
	if want, has := requests.Cpu(), allocatable.Cpu(); want.Cmp(*has) > 0 {
		missing = append(missing, fmt.Sprintf("cpu, requested: %d, allocatable: %d", want.MilliValue(), has.MilliValue()))
	}
	if want, has := requests.Memory(), allocatable.Memory(); want.Cmp(*has) > 0 {
		missing = append(missing, fmt.Sprintf("memory, requested: %d, allocatable: %d", want.Value(), has.Value()))
	}
	return missing
}

func refusedResize(a admission.Attributes, cause metav1.CauseType, why string) error {
	err := admission.NewForbidden(a, errors.New(why))
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}
