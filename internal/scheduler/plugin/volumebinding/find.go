package volumebinding

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/csimigration"
)

// The reasons why a node cannot take a pod.
const (
	nodeConflict   = "node(s) didn't match PersistentVolume's node affinity"
	bindConflict   = "node(s) didn't find available persistent volumes to bind"
	notEnoughSpace = "node(s) did not have enough free storage"
	volumeNotExist = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
)

// podVolumes are the volumes that a pod gets on a node beside those that its
// claims have. nil has none.
type podVolumes struct {
	bindings   []*binding
	provisions []*provision
}

// binding is a claim with the volume that is to be bound to it.
type binding struct {
	claim  *v1.PersistentVolumeClaim
	volume *v1.PersistentVolume
}

// provision is a claim for which a volume is to be made.
type provision struct {
	claim *v1.PersistentVolumeClaim
	// capacity of the storage that takes it, in bytes; 0 if it is not known.
	capacity int64
}

func (v *podVolumes) isEmpty() bool { return v == nil || len(v.bindings)+len(v.provisions) == 0 }

// on returns the volumes that the pod gets on a node, or the reasons why it
// cannot run there.
func (p *plugin) on(node *v1.Node, c *podClaims) (found *podVolumes, reasons []string, err error) {
	if reason := p.conflictOfBound(node, c); reason != "" {
		reasons = append(reasons, reason)
	}
	found, reason, err := c.forOpen(node)
	if err != nil {
		return nil, nil, err
	}
	if reason != "" {
		reasons = append(reasons, reason)
	}
	return found, reasons, nil
}

// conflictOfBound returns why the first of the bound volumes that cannot be used on
// a node cannot be, or "".
func (p *plugin) conflictOfBound(node *v1.Node, c *podClaims) string {
	for _, pv := range c.bound {
		switch {
		case pv == nil:
			return volumeNotExist
		case p.checkNodeAffinity(pv, node) != nil:
			return nodeConflict
		}
	}
	return ""
}

// checkNodeAffinity returns an error if a volume cannot be reached from a node.
// A migrated in-tree volume has the node affinity that its CSI driver uses.
func (p *plugin) checkNodeAffinity(pv *v1.PersistentVolume, node *v1.Node) error {
	if plugin := csimigration.Plugin(&pv.Spec.PersistentVolumeSource); plugin != "" {
		if csiNode, err := p.csiNodes.Get(node.Name); err == nil && csimigration.IsMigrated(csiNode, plugin) {
			pv = csimigration.Translated(pv)
		}
	}
	return volume.CheckNodeAffinity(pv, node.Labels)
}

// forOpen finds a volume for each open claim, the smallest claim first, or else
// whether it can be provisioned.
func (c *podClaims) forOpen(node *v1.Node) (found *podVolumes, reason string, err error) {
	found = &podVolumes{}
	chosen := map[string]*v1.PersistentVolume{}
	var missing []*openClaim
	for _, o := range c.open {
		if selected, ok := o.claim.Annotations[volume.AnnSelectedNode]; ok { // the provisioner is at work
			if selected != node.Name {
				return nil, bindConflict, nil
			}
			missing = append(missing, o)
			continue
		}
		pv, err := volume.FindMatchingVolume(o.claim, o.volumes, node, chosen, true, true)
		switch {
		case err != nil:
			return nil, "", err
		case pv == nil:
			missing = append(missing, o)
		default:
			chosen[pv.Name] = pv
			found.bindings = append(found.bindings, &binding{claim: o.claim, volume: pv})
		}
	}
	for _, o := range missing {
		if !o.canProvision(node) {
			return nil, bindConflict, nil
		}
		bytes, enough := o.capacityFor(node)
		if !enough {
			return nil, notEnoughSpace, nil
		}
		found.provisions = append(found.provisions, &provision{claim: o.claim, capacity: bytes})
	}
	return found, "", nil
}

// canProvision reports whether the class makes volumes for a node.
func (o *openClaim) canProvision(node *v1.Node) bool {
	if o.class.Provisioner == "" || o.class.Provisioner == volume.NotSupportedProvisioner {
		return false
	}
	return len(o.class.AllowedTopologies) == 0 || slices.ContainsFunc(o.class.AllowedTopologies, func(term v1.TopologySelectorTerm) bool {
		return len(term.MatchLabelExpressions) > 0 && !slices.ContainsFunc(term.MatchLabelExpressions, func(r v1.TopologySelectorLabelRequirement) bool {
			value, ok := node.Labels[r.Key]
			return !ok || !slices.Contains(r.Values, value)
		})
	})
}

// capacityFor reports whether the storage of a node has room for the claim, and
// how large that storage is.
func (o *openClaim) capacityFor(node *v1.Node) (bytes int64, enough bool) {
	if !o.isTracked {
		return 0, true
	}
	for _, c := range o.capacities {
		if c.nodes.Matches(labels.Set(node.Labels)) {
			return c.bytes, true
		}
	}
	return 0, false
}

// rate is the mean of the scores of the classes that the pod uses: of the
// volumes that are bound or, if there are none, of those to be provisioned.
func (v *podVolumes) rate(score func(used, capacity int64) int64) int64 {
	type usage struct{ used, capacity int64 }
	classes := map[string]usage{}
	request := func(claim *v1.PersistentVolumeClaim) int64 {
		return amount.Value(claim.Spec.Resources.Requests[v1.ResourceStorage])
	}
	switch {
	case v.isEmpty():
		return 0
	case len(v.bindings) > 0:
		for _, b := range v.bindings {
			class := volume.GetPersistentVolumeClass(b.volume)
			u := classes[class]
			u.used, u.capacity = amount.Sum(u.used, request(b.claim)), amount.Sum(u.capacity, amount.Value(b.volume.Spec.Capacity[v1.ResourceStorage]))
			classes[class] = u
		}
	default:
		for _, p := range v.provisions {
			if p.capacity == 0 {
				continue
			}
			class := volume.GetPersistentVolumeClaimClass(p.claim)
			classes[class] = usage{amount.Sum(classes[class].used, request(p.claim)), p.capacity} // one storage serves all claims of a class
		}
	}
	if len(classes) == 0 {
		return 0
	}
	var sum int64
	for _, u := range classes {
		sum += score(u.used, u.capacity)
	}
	return int64(math.Round(float64(sum) / float64(len(classes))))
}
