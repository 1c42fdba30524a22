package localvolume

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/supervise"
)

// maxClass is the length of the longest name of a class. An annotation may be longer.
const maxClass = 253

// watchClaims starts an informer of all claims, which runs until ctx ends, and sets the
// lister.
func (p *Provisioner) watchClaims(ctx context.Context) cache.SharedIndexInformer {
	informer := p.Client.WatchReduced(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), metav1.NamespaceAll, fields.Everything(), p.reduce)
	p.claims = corelisters.NewPersistentVolumeClaimLister(informer.GetIndexer())
	supervise.Go(ctx, func() { informer.RunWithContext(ctx) })
	return informer
}

// reduce returns what the provisioner uses of a claim: each node keeps that of all claims
// of the cluster. Of those that ask nothing of it, that is their identity. It returns other
// objects as they are.
func (p *Provisioner) reduce(obj any) (any, error) {
	claim, ok := obj.(*v1.PersistentVolumeClaim)
	if !ok {
		return obj, nil
	}
	out := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion, DeletionTimestamp: claim.DeletionTimestamp,
	}}
	requested := p.requested(claim)
	if !requested && !grows(claim) {
		return out, nil
	}
	if requested {
		out.Annotations = map[string]string{}
		for _, key := range []string{volume.AnnStorageProvisioner, volume.AnnSelectedNode} {
			out.Annotations[key] = claim.Annotations[key]
		}
	}
	s, class := &claim.Spec, volume.GetPersistentVolumeClaimClass(claim)
	out.Spec = v1.PersistentVolumeClaimSpec{
		Resources:        v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: s.Resources.Requests[v1.ResourceStorage]}},
		StorageClassName: new(strings.Clone(class[:min(len(class), maxClass)])),
		VolumeName:       s.VolumeName, VolumeMode: s.VolumeMode, VolumeAttributesClassName: s.VolumeAttributesClassName,
	}
	for _, mode := range s.AccessModes {
		if !slices.Contains(out.Spec.AccessModes, mode) {
			out.Spec.AccessModes = append(out.Spec.AccessModes, mode)
		}
	}
	if s.Selector != nil {
		out.Spec.Selector = &metav1.LabelSelector{}
	}
	if s.DataSource != nil || s.DataSourceRef != nil {
		out.Spec.DataSource = &v1.TypedLocalObjectReference{}
	}
	out.Status.Phase = claim.Status.Phase
	out.Status.Capacity = v1.ResourceList{v1.ResourceStorage: claim.Status.Capacity[v1.ResourceStorage]}
	return out, nil
}

// whole returns a copy of all of a claim. It returns ErrStale if the informer has another
// version of it.
func (p *Provisioner) whole(ctx context.Context, claim *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	current, err := p.Client.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if current.ResourceVersion != claim.ResourceVersion {
		return nil, controller.ErrStale
	}
	return current.DeepCopy(), nil
}
