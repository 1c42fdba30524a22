package volumebinding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/podquery"
)

// podClaims are the claims of a pod with what an answer for any node needs.
type podClaims struct {
	// bound are the volumes of claims that are bound, in the pod's order. nil is one
	// that does not exist.
	bound []*v1.PersistentVolume
	// open are the claims for which the scheduler chooses, by ascending size.
	open []*openClaim
}

// openClaim is a claim of a class with WaitForFirstConsumer that is not bound.
type openClaim struct {
	claim   *v1.PersistentVolumeClaim
	class   *storagev1.StorageClass
	volumes []*v1.PersistentVolume // of the class, by name
	// isTracked is whether the provisioner publishes its capacities. capacities
	// are the published ones with enough room for the claim.
	isTracked  bool
	capacities []capacity
}

// capacity is a CSIStorageCapacity.
type capacity struct {
	bytes int64 // of the whole; 0 if that is not known
	nodes labels.Selector
}

// usable returns why the claims of a pod cannot be used on any node.
func (p *plugin) usable(pod *v1.Pod) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			continue
		}
		name, isEphemeral := podquery.ClaimName(pod, v)
		claim, err := p.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		switch {
		case isEphemeral && apierrors.IsNotFound(err):
			return fmt.Errorf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
		case err != nil:
			return err
		case claim.Status.Phase == v1.ClaimLost:
			return fmt.Errorf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName)
		case claim.DeletionTimestamp != nil:
			return fmt.Errorf("persistentvolumeclaim %q is being deleted", name)
		case isEphemeral:
			if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
				return err
			}
		}
	}
	return nil
}

// claimsOf divides the claims of a pod. immediate is whether one of them is not
// bound and has no class with WaitForFirstConsumer.
func (p *plugin) claimsOf(pod *v1.Pod) (claims podClaims, immediate bool, err error) {
	seen := map[string]bool{}
	for name := range podquery.ClaimNames(pod) {
		if seen[name] {
			continue
		}
		seen[name] = true
		claim, err := p.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil {
			return podClaims{}, false, err
		}
		claim = p.assumedClaims.latest(claim)
		if isBound(claim) {
			pv, err := p.volumes.Get(claim.Spec.VolumeName)
			switch {
			case apierrors.IsNotFound(err):
				pv = nil
			case err != nil:
				return podClaims{}, false, err
			}
			claims.bound = append(claims.bound, pv)
			continue
		}
		waits, err := volume.IsDelayBindingMode(claim, p.classes)
		if err != nil {
			return podClaims{}, false, err
		}
		if !waits || claim.Spec.VolumeName != "" { // a claim that names its volume leaves no choice
			immediate = true
			continue
		}
		open, err := p.open(claim)
		if err != nil {
			return podClaims{}, false, err
		}
		claims.open = append(claims.open, open)
	}
	slices.SortStableFunc(claims.open, func(a, b *openClaim) int {
		x, y := a.claim.Spec.Resources.Requests[v1.ResourceStorage], b.claim.Spec.Resources.Requests[v1.ResourceStorage]
		return x.Cmp(y)
	})
	return claims, immediate, nil
}

// isBound reports whether the binder controller has completed the binding.
func isBound(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted)
}

// open looks up what may serve a claim.
func (p *plugin) open(claim *v1.PersistentVolumeClaim) (*openClaim, error) {
	class, err := p.classes.Get(volume.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return nil, fmt.Errorf("failed to find storage class %q: %w", volume.GetPersistentVolumeClaimClass(claim), err)
	}
	o := &openClaim{claim: claim, class: class}
	objects, err := p.volumesByClass.ByIndex(byClass, class.Name)
	if err != nil {
		return nil, err
	}
	for _, obj := range objects {
		v, ok := obj.(*v1.PersistentVolume)
		if !ok {
			return nil, errors.New("the index of persistent volumes holds something else")
		}
		if v = p.assumedVolumes.latest(v); v.Spec.ClaimRef == nil || volume.IsVolumeBoundToClaim(v, claim) {
			o.volumes = append(o.volumes, v)
		}
	}
	slices.SortFunc(o.volumes, func(a, b *v1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return o, p.lookUpCapacities(o)
}

// lookUpCapacities finds the capacities with room for a claim, if its
// provisioner publishes them (KEP-1472).
func (p *plugin) lookUpCapacities(o *openClaim) error {
	request, ok := o.claim.Spec.Resources.Requests[v1.ResourceStorage]
	driver, err := p.drivers.Get(o.class.Provisioner)
	switch {
	case !ok || apierrors.IsNotFound(err): // no CSI driver, or one that does not say
		return nil
	case err != nil:
		return err
	case !publishesCapacity(driver):
		return nil
	}
	o.isTracked = true
	objects, err := p.capacitiesByClass.ByIndex(byClass, o.class.Name)
	if err != nil {
		return err
	}
	var fitting []*storagev1.CSIStorageCapacity
	for _, obj := range objects {
		if c, ok := obj.(*storagev1.CSIStorageCapacity); ok && c.NodeTopology != nil && room(c) >= amount.Value(request) {
			fitting = append(fitting, c)
		}
	}
	slices.SortFunc(fitting, func(a, b *storagev1.CSIStorageCapacity) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for _, c := range fitting {
		nodes, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
		if err != nil {
			continue // no node is in a topology that cannot be read
		}
		made := capacity{nodes: nodes}
		if c.Capacity != nil {
			made.bytes = amount.Value(*c.Capacity)
		}
		o.capacities = append(o.capacities, made)
	}
	return nil
}

// room is the largest volume that a capacity has room for; -1 is none.
func room(c *storagev1.CSIStorageCapacity) int64 {
	switch {
	case c.MaximumVolumeSize != nil:
		return amount.Value(*c.MaximumVolumeSize)
	case c.Capacity != nil:
		return amount.Value(*c.Capacity)
	}
	return -1
}
