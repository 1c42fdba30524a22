package volumebinder

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"
)

// byTaker is the name of the index of volumes by who may have them: the claim for which
// a volume is reserved, or else the claims of its class. byNeed is that of claims that are not
// bound, or have lost their volume, by the volume that they name, or else by their class and the
// node that is selected.
const (
	byTaker = "taker"
	byNeed  = "need"
)

func ofVolume(name string) string           { return "volume/" + name }
func ofClass(name string) string            { return "class/" + name }
func ofNode(name string) string             { return "node/" + name }
func ofClaim(namespace, name string) string { return "claim/" + namespace + "/" + name }

// takers is the index function of byTaker.
func takers(o any) ([]string, error) {
	v, ok := o.(*v1.PersistentVolume)
	if !ok {
		return nil, fmt.Errorf("cannot index a %T by who may have it", o)
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		return []string{ofClaim(ref.Namespace, ref.Name)}, nil
	}
	return []string{ofClass(volume.GetPersistentVolumeClass(v))}, nil
}

// needs is the index function of byNeed.
func needs(o any) ([]string, error) {
	claim, ok := o.(*v1.PersistentVolumeClaim)
	if !ok {
		return nil, fmt.Errorf("cannot index a %T by what it needs", o)
	}
	if name := claim.Spec.VolumeName; name != "" {
		if metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) && claim.Status.Phase != v1.ClaimLost {
			return nil, nil
		}
		return []string{ofVolume(name)}, nil
	}
	keys := []string{ofClass(volume.GetPersistentVolumeClaimClass(claim))}
	if node := claim.Annotations[volume.AnnSelectedNode]; node != "" {
		keys = append(keys, ofNode(node))
	}
	return keys, nil
}

// candidates returns the volumes that a claim may have.
func (c *binder) candidates(claim *v1.PersistentVolumeClaim) ([]*v1.PersistentVolume, error) {
	var all []*v1.PersistentVolume
	for _, key := range []string{ofClaim(claim.Namespace, claim.Name), ofClass(volume.GetPersistentVolumeClaimClass(claim))} {
		found, err := c.volumeIndex.ByIndex(byTaker, key)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			all = append(all, o.(*v1.PersistentVolume))
		}
	}
	return all, nil
}

// enqueueNeeding enqueues the claims at a key of byNeed.
func (c *binder) enqueueNeeding(key string) {
	found, err := c.claimIndex.ByIndex(byNeed, key)
	if err != nil {
		return
	}
	for _, o := range found {
		c.queue.Add(cache.MetaObjectToName(o.(*v1.PersistentVolumeClaim)))
	}
}
