package volumebinding

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// ExplainPod implements framework.PodExplainer: it lists the claims that cannot
// be used, whatever the node.
func (p *plugin) ExplainPod(_ *framework.CycleState, pod *framework.PodInfo) (out []framework.Obstacle) {
	for i := range pod.Pod.Spec.Volumes {
		v := &pod.Pod.Spec.Volumes[i]
		name, isEphemeral := podquery.ClaimName(pod.Pod, v)
		if name == "" {
			continue
		}
		claim, err := p.claims.PersistentVolumeClaims(pod.Pod.Namespace).Get(name)
		switch {
		case isEphemeral && apierrors.IsNotFound(err):
			out = append(out, framework.Obstacle{Text: fmt.Sprintf("PersistentVolumeClaim %s of the ephemeral volume %s is not created yet", name, v.Name)})
		case apierrors.IsNotFound(err):
			out = append(out, framework.MissingClaim(pod.Pod.Namespace, name))
		case err == nil && isEphemeral && ephemeral.VolumeIsForPod(pod.Pod, claim) != nil:
			out = append(out, framework.Obstacle{Text: fmt.Sprintf("PersistentVolumeClaim %s of the ephemeral volume %s was not made for the pod", name, v.Name)})
		case err == nil:
			if o := p.explainClaim(claim); o.Text != "" {
				out = append(out, o)
			}
		}
	}
	return out
}

// explainClaim says why a claim cannot be used. The obstacle has no text if it can.
func (p *plugin) explainClaim(claim *v1.PersistentVolumeClaim) framework.Obstacle {
	class, size := volume.GetPersistentVolumeClaimClass(claim), sizeOf(claim)
	switch {
	case claim.Status.Phase == v1.ClaimLost:
		return framework.Obstacle{
			Text:     fmt.Sprintf("PersistentVolumeClaim %s is bound to PersistentVolume %s, which does not exist", claim.Name, claim.Spec.VolumeName),
			Remedies: []string{"restore PersistentVolume " + claim.Spec.VolumeName, fmt.Sprintf("recreate PersistentVolumeClaim %s; its data is lost", claim.Name)},
		}
	case claim.DeletionTimestamp != nil:
		return framework.Obstacle{Text: fmt.Sprintf("PersistentVolumeClaim %s is being deleted", claim.Name), Remedies: []string{"recreate it once it is gone"}}
	case isBound(claim):
		return framework.Obstacle{}
	case claim.Spec.VolumeName != "":
		return framework.Obstacle{
			Text:     fmt.Sprintf("PersistentVolumeClaim %s is not bound to PersistentVolume %s that it names", claim.Name, claim.Spec.VolumeName),
			Remedies: []string{fmt.Sprintf("create PersistentVolume %s with at least %s, or free it", claim.Spec.VolumeName, size)},
		}
	}
	if waits, err := volume.IsDelayBindingMode(claim, p.classes); waits || err != nil {
		return framework.Obstacle{}
	}
	if class == "" {
		return framework.Obstacle{
			Text:     fmt.Sprintf("PersistentVolumeClaim %s is not bound, and has no storage class that would provision a volume", claim.Name),
			Remedies: []string{fmt.Sprintf("create a PersistentVolume with at least %s", size), "recreate the claim with a storageClassName"},
		}
	}
	remedies := []string{fmt.Sprintf("create a PersistentVolume of class %s with at least %s", class, size)}
	found, err := p.classes.Get(class)
	if apierrors.IsNotFound(err) {
		return framework.Obstacle{
			Text:     fmt.Sprintf("PersistentVolumeClaim %s is not bound, and StorageClass %s does not exist", claim.Name, class),
			Remedies: append([]string{"create StorageClass " + class, "recreate the claim with another storageClassName"}, remedies...),
		}
	}
	if err == nil && found.Provisioner != volume.NotSupportedProvisioner {
		remedies = append(remedies, "look why the provisioner "+found.Provisioner+" does not make one")
	}
	return framework.Obstacle{Text: fmt.Sprintf("PersistentVolumeClaim %s is not bound, and its class %s does not wait for the scheduler", claim.Name, class), Remedies: remedies}
}

// Explain implements framework.Explainer: it names the claims and volumes.
func (p *plugin) Explain(cycle *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	s, ok := p.state.Get(cycle)
	if !ok {
		return nil
	}
	for _, pv := range s.claims.bound {
		if pv != nil && p.checkNodeAffinity(pv, n.Node) != nil {
			out = append(out, framework.Obstacle{Text: fmt.Sprintf("PersistentVolume %s is not reachable from the node: it is where %s", pv.Name, reachableFrom(pv))})
		}
	}
	chosen := map[string]*v1.PersistentVolume{}
	for _, o := range s.claims.open {
		out = append(out, o.explain(n.Node, chosen)...)
	}
	if slices.Contains(s.claims.bound, nil) {
		out = append(out, framework.Obstacle{Text: volumeNotExist, Remedies: []string{"restore the PersistentVolumes"}})
	}
	return out
}

// explain says why there is neither a volume for a claim on a node nor room to
// provision one. chosen are those that other claims of the pod take.
func (o *openClaim) explain(node *v1.Node, chosen map[string]*v1.PersistentVolume) []framework.Obstacle {
	name, class, size := o.claim.Name, o.class.Name, sizeOf(o.claim)
	if selected, ok := o.claim.Annotations[volume.AnnSelectedNode]; ok {
		if selected == node.Name {
			return nil
		}
		return []framework.Obstacle{{Text: fmt.Sprintf("the volume of PersistentVolumeClaim %s is being provisioned for node %s", name, selected)}}
	}
	if pv, err := volume.FindMatchingVolume(o.claim, o.volumes, node, chosen, true, true); err == nil && pv != nil {
		chosen[pv.Name] = pv
		return nil
	}
	create := fmt.Sprintf("create a PersistentVolume of class %s with at least %s that the node reaches", class, size)
	if !o.canProvision(node) {
		text := fmt.Sprintf("no free PersistentVolume on the node fits PersistentVolumeClaim %s (class %s, %s)", name, class, size)
		if len(o.class.AllowedTopologies) > 0 {
			return []framework.Obstacle{{
				Text:     text + ", and the node is not in the allowedTopologies of the class",
				Remedies: []string{create, fmt.Sprintf("add the node's topology to the allowedTopologies of StorageClass %s", class)},
			}}
		}
		return []framework.Obstacle{{Text: text + ", and the class provisions none", Remedies: []string{create}}}
	}
	if _, enough := o.capacityFor(node); !enough {
		return []framework.Obstacle{{
			Text:     fmt.Sprintf("no storage of class %s that the node reaches has %s free for PersistentVolumeClaim %s", class, size, name),
			Remedies: []string{create, "add storage that the provisioner " + o.class.Provisioner + " can use", "recreate the claim with a smaller request"},
		}}
	}
	return nil
}

func sizeOf(claim *v1.PersistentVolumeClaim) string {
	size := claim.Spec.Resources.Requests[v1.ResourceStorage]
	return size.String()
}

// reachableFrom describes the node affinity of a volume.
func reachableFrom(pv *v1.PersistentVolume) string {
	var terms []string
	if a := pv.Spec.NodeAffinity; a == nil || a.Required == nil {
		return "its labels say"
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		var parts []string
		for _, r := range append(append([]v1.NodeSelectorRequirement{}, term.MatchExpressions...), term.MatchFields...) {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ", "))))
		}
		terms = append(terms, strings.Join(parts, " and "))
	}
	return strings.Join(terms, ", or ")
}
