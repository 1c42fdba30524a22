package dynamicresources

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// ExplainPod implements framework.PodExplainer: it lists the claims that cannot
// be used and the classes that do not exist.
func (p *plugin) ExplainPod(_ *framework.CycleState, pod *framework.PodInfo) (out []framework.Obstacle) {
	for i := range pod.Pod.Spec.ResourceClaims {
		c := &pod.Pod.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(pod.Pod, c)
		if errors.Is(err, resourceclaim.ErrClaimNotFound) {
			template := ptr.Deref(c.ResourceClaimTemplateName, "")
			out = append(out, framework.Obstacle{
				Text:     fmt.Sprintf("the ResourceClaim for %s is not created yet from ResourceClaimTemplate %s", c.Name, template),
				Remedies: []string{fmt.Sprintf("create ResourceClaimTemplate %s in namespace %s, if it does not exist", template, pod.Pod.Namespace)},
			})
		}
		if err != nil || name == nil {
			continue
		}
		claim, err := p.claims.get(pod.Pod.Namespace, *name)
		switch {
		case apierrors.IsNotFound(err):
			out = append(out, framework.Obstacle{
				Text:     fmt.Sprintf("ResourceClaim %s/%s does not exist", pod.Pod.Namespace, *name),
				Remedies: []string{fmt.Sprintf("create ResourceClaim %s in namespace %s", *name, pod.Pod.Namespace)},
			})
		case err == nil && claim.DeletionTimestamp != nil:
			out = append(out, framework.Obstacle{Text: fmt.Sprintf("ResourceClaim %s is being deleted", *name), Remedies: []string{"recreate it once it is gone"}})
		case err == nil && claim.Status.Allocation == nil:
			out = append(out, p.missingClasses(claim)...)
		}
	}
	return out
}

func (p *plugin) missingClasses(claim *resourceapi.ResourceClaim) (out []framework.Obstacle) {
	for _, class := range classesOf(claim) {
		if _, err := p.classes.Get(class); apierrors.IsNotFound(err) {
			out = append(out, framework.Obstacle{
				Text:     fmt.Sprintf("ResourceClaim %s wants devices of DeviceClass %s, which does not exist", claim.Name, class),
				Remedies: []string{"create DeviceClass " + class + ", or install the driver that brings it"},
			})
		}
	}
	return out
}

func classesOf(claim *resourceapi.ResourceClaim) (classes []string) {
	for _, request := range claim.Spec.Devices.Requests {
		if request.Exactly != nil {
			classes = append(classes, request.Exactly.DeviceClassName)
		}
		for _, sub := range request.FirstAvailable {
			classes = append(classes, sub.DeviceClassName)
		}
	}
	return classes
}

// Explain implements framework.Explainer: it names the claims whose devices are
// elsewhere, and counts the devices that the node has for the others.
func (p *plugin) Explain(cycle *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	s, ok := p.states.Get(cycle)
	if !ok {
		return nil
	}
	var wanted []string
	for _, claim := range s.claims {
		switch {
		case claim.Status.Allocation == nil:
			wanted = append(wanted, fmt.Sprintf("ResourceClaim %s (%s)", claim.Name, strings.Join(classesOf(claim.ResourceClaim), ", ")))
		case claim.nodes != nil && !claim.nodes.Match(n.Node):
			out = append(out, framework.Obstacle{Text: fmt.Sprintf("ResourceClaim %s has %s, which the node does not reach", claim.Name, devicesOf(claim.ResourceClaim))})
		case p.bindingFailed(claim.ResourceClaim):
			out = append(out, framework.Obstacle{Text: fmt.Sprintf("a device of ResourceClaim %s cannot be bound: its driver reports a failure", claim.Name)})
		}
	}
	for _, name := range s.extended {
		wanted = append(wanted, "resource "+string(name))
	}
	if len(out) > 0 || len(wanted) == 0 {
		return out
	}
	devices, taken := p.devicesOn(n.Node)
	o := framework.Obstacle{Text: fmt.Sprintf("the devices that the node reaches do not satisfy %s: it has %d, of which %d are allocated", strings.Join(wanted, " and "), devices, taken)}
	if taken > 0 {
		o.Remedies = append(o.Remedies, "delete pods that hold devices which the claims select")
	}
	o.Remedies = append(o.Remedies, "let the claims select other devices", "tolerate the taints of devices, if they have any")
	if devices == 0 {
		o.Remedies = []string{"install a driver that publishes devices of the node in ResourceSlices"}
	}
	return []framework.Obstacle{o}
}

func devicesOf(claim *resourceapi.ResourceClaim) string {
	var names []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		names = append(names, fmt.Sprintf("device %s of driver %s", r.Device, r.Driver))
	}
	return strings.Join(names, ", ")
}

// devicesOn counts the devices that a node reaches, and how many of them are
// allocated.
func (p *plugin) devicesOn(node *v1.Node) (devices, taken int) {
	all, err := p.listSlices()
	if err != nil {
		return 0, 0
	}
	allocated := p.claims.allocated(p.features.ConsumableCapacity).AllocatedDevices
	for slice, device := range devicesFor(all, node) {
		devices++
		if allocated.Has(structured.MakeDeviceID(slice.Driver, slice.Pool.Name, device.Name)) {
			taken++
		}
	}
	return devices, taken
}
