// Package volumeprotection keeps volumes, claims and volume attributes classes
// that are in use from going: a finalizer holds what is deleted until nothing needs it.
package volumeprotection

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
)

// Finalizers of claims, volumes and classes.
const (
	claimFinalizer  = "kubernetes.io/pvc-protection"
	volumeFinalizer = "kubernetes.io/pv-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
)

// Claims describes the controller that protects claims used by pods.
func Claims() controller.Descriptor {
	return controller.Descriptor{
		Name:           "persistentvolumeclaim-protection-controller",
		Aliases:        []string{"pvc-protection"},
		ServiceAccount: "pvc-protection-controller",
		EventSource:    "pvc-protection-controller",
		New:            newClaims,
	}
}

// Volumes describes the controller that protects volumes bound to claims.
func Volumes() controller.Descriptor {
	return controller.Descriptor{
		Name:           "persistentvolume-protection-controller",
		Aliases:        []string{"pv-protection"},
		ServiceAccount: "pv-protection-controller",
		EventSource:    "pv-protection-controller",
		New:            newVolumes,
	}
}

// byClaim is the name of the pod informer's index by the claims a pod uses.
const byClaim = "claim"

// claimKeys is the index function of byClaim: "namespace/claim".
func claimKeys(o any) ([]string, error) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, name := range claimsOf(p) {
		keys = append(keys, p.Namespace+"/"+name)
	}
	return keys, nil
}

// claimsOf are the claims that a pod uses, those of its ephemeral volumes
// included.
func claimsOf(p *v1.Pod) (names []string) {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, p.Name+"-"+v.Name)
		}
	}
	return names
}

// newClaims builds the controller of claims.
func newClaims(env *controller.Env) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	podInformer := core.Pods().Informer()
	if err := env.Index(podInformer, byClaim, claimKeys); err != nil {
		return nil, err
	}
	kube := env.Client.Kubernetes.CoreV1()
	queue := controller.NewQueue("pvcprotection", controller.Existing[controller.Key](core.PersistentVolumeClaims().Informer(), func(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
		key := cache.MetaObjectToName(claim)
		inUse := func() (bool, error) {
			users, err := podInformer.GetIndexer().ByIndex(byClaim, key.String())
			// A pod that no node has seen yet does not hold its claims.
			if err != nil || slices.ContainsFunc(users, func(o any) bool { return o.(*v1.Pod).Spec.NodeName != "" }) {
				return true, err
			}
			// The cache may be behind; what is let go cannot be brought back.
			fresh, err := kube.Pods(key.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return true, err
			}
			return slices.ContainsFunc(fresh.Items, func(p v1.Pod) bool {
				return p.Spec.NodeName != "" && slices.Contains(claimsOf(&p), key.Name)
			}), nil
		}
		return protect(claim, claimFinalizer, inUse, func(finalizers []string) error {
			next := claim.DeepCopy()
			next.Finalizers = finalizers
			_, err := kube.PersistentVolumeClaims(key.Namespace).Update(ctx, next, metav1.UpdateOptions{})
			return err
		})
	}))
	return controller.Func(func(ctx context.Context) error {
		return controller.Serve(ctx, []controller.Source{
			controller.On(core.PersistentVolumeClaims().Informer(), func(_, claim *v1.PersistentVolumeClaim) {
				if claim != nil {
					queue.Add(cache.MetaObjectToName(claim))
				}
			}),
			controller.On(podInformer, func(old, new *v1.Pod) {
				if new != nil || old == nil {
					return
				}
				for _, name := range claimsOf(old) {
					queue.Add(controller.Key{Namespace: old.Namespace, Name: name})
				}
			}),
		}, queue.Workers(1))
	}), nil
}

// newVolumes builds the controller of volumes.
func newVolumes(env *controller.Env) (controller.Controller, error) {
	volumes := env.Client.Informers.Core().V1().PersistentVolumes()
	kube := env.Client.Kubernetes.CoreV1()
	queue := controller.NewQueue("pvprotection", controller.Existing[string](volumes.Informer(), func(ctx context.Context, volume *v1.PersistentVolume) error {
		bound := func() (bool, error) { return volume.Status.Phase == v1.VolumeBound, nil }
		return protect(volume, volumeFinalizer, bound, func(finalizers []string) error {
			next := volume.DeepCopy()
			next.Finalizers = finalizers
			_, err := kube.PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
			return err
		})
	}))
	return controller.Func(func(ctx context.Context) error {
		return controller.Serve(ctx, []controller.Source{
			controller.On(volumes.Informer(), func(_, volume *v1.PersistentVolume) {
				if volume != nil {
					queue.Add(volume.Name)
				}
			}),
		}, queue.Workers(1))
	}), nil
}

// protect puts the finalizer on an object that has none and is not being
// deleted, and takes it off one that is being deleted and not in use.
func protect(o metav1.Object, finalizer string, inUse func() (bool, error), write func(finalizers []string) error) error {
	held := slices.Contains(o.GetFinalizers(), finalizer)
	finalizers := slices.Clone(o.GetFinalizers())
	switch {
	case o.GetDeletionTimestamp() == nil && !held:
		finalizers = append(finalizers, finalizer)
	case o.GetDeletionTimestamp() != nil && held:
		if used, err := inUse(); err != nil || used {
			return err
		}
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == finalizer })
	default:
		return nil
	}
	if err := write(finalizers); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
