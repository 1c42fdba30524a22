// Package volumeprotection contains the controllers that protect claims, volumes
// and VolumeAttributesClasses in use. They add a finalizer to each object and
// remove it once the object is being deleted and no longer in use.
package volumeprotection

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
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

// newClaims builds the controller of claims.
func newClaims(env *controller.Env) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	podInformer := core.Pods().Informer()
	if err := env.Index(podInformer, pods.ByClaim, pods.ClaimKeys); err != nil {
		return nil, err
	}
	kube := env.Client.Kubernetes.CoreV1()
	queue := controller.NewQueue(env.Queues, "pvcprotection", controller.Existing[controller.Key](core.PersistentVolumeClaims().Informer(), func(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
		key := cache.MetaObjectToName(claim)
		inUse := func() (bool, error) {
			users, err := pods.OfClaim(podInformer, claim)
			if err != nil || slices.ContainsFunc(users, func(p *v1.Pod) bool { return uses(p, claim) }) {
				return true, err
			}
			// The cache may be stale, and removing the finalizer cannot be undone.
			fresh, err := kube.Pods(key.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return true, err
			}
			return slices.ContainsFunc(fresh.Items, func(p v1.Pod) bool { return uses(&p, claim) }), nil
		}
		if claim.DeletionTimestamp == nil && slices.Contains(claim.Finalizers, claimFinalizer) && env.Features.Enabled(feature.PersistentVolumeClaimUnusedSinceTime) {
			users, err := pods.OfClaim(podInformer, claim)
			if err != nil {
				return err
			}
			return showUse(ctx, kube.PersistentVolumeClaims(key.Namespace), claim, slices.ContainsFunc(users, func(p *v1.Pod) bool { return references(p, claim) }))
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
				if old != nil && new != nil && isShutDown(old) == isShutDown(new) && podquery.IsFinished(old) == podquery.IsFinished(new) {
					return
				}
				pod := cmp.Or(new, old)
				for name := range podquery.ClaimNames(pod) {
					queue.Add(controller.Key{Namespace: pod.Namespace, Name: name})
				}
			}),
		}, queue.Workers(1))
	}), nil
}

// uses reports whether a pod uses a claim. A pod without a node does not, and
// will not: the kubelet mounts no claim that is being deleted. If a pod is deleted
// in the foreground, the claims of its ephemeral volumes are deleted before it, so
// it uses them only until it is shut down.
func uses(pod *v1.Pod, claim *v1.PersistentVolumeClaim) bool {
	return pod.Spec.NodeName != "" && slices.ContainsFunc(pod.Spec.Volumes, func(vol v1.Volume) bool {
		name, isEphemeral := podquery.ClaimName(pod, &vol)
		return name == claim.Name && (!isEphemeral || !isShutDown(pod) && ephemeral.VolumeIsForPod(pod, claim) == nil)
	})
}

// isShutDown reports whether the kubelet has ended the pod and unmounted its
// volumes, or somebody has deleted it by force.
func isShutDown(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// newVolumes builds the controller of volumes.
func newVolumes(env *controller.Env) (controller.Controller, error) {
	volumes := env.Client.Informers.Core().V1().PersistentVolumes()
	kube := env.Client.Kubernetes.CoreV1()
	queue := controller.NewQueue(env.Queues, "pvprotection", controller.Existing[string](volumes.Informer(), func(ctx context.Context, volume *v1.PersistentVolume) error {
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

// protect adds the finalizer to an object that is not being deleted, and removes
// it from one that is being deleted and not in use.
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
