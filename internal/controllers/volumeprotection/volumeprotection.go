// Package volumeprotection contains the controllers that protect claims, volumes
// and VolumeAttributesClasses in use. They add a finalizer to each object and
// remove it once the object is being deleted and no longer in use.
package volumeprotection

import (
	"cmp"
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
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

// claims is the controller of claims. One worker handles all keys.
type claims struct {
	env      *controller.Env
	informer coreinformers.PersistentVolumeClaimInformer
	pods     cache.SharedIndexInformer
	// queue holds claims, and namespaces that have claims in leaving, which have no name.
	queue *controller.Queue[controller.Key]
	// leaving holds the names of claims that are being deleted, by their namespaces. The worker
	// uses it alone.
	leaving map[string]sets.Set[string]
}

// newClaims builds the controller of claims.
func newClaims(env *controller.Env) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	c := &claims{env: env, informer: core.PersistentVolumeClaims(), pods: core.Pods().Informer(), leaving: map[string]sets.Set[string]{}}
	c.queue = controller.NewQueue(env.Queues, "pvcprotection", c.sync)
	return c, env.Index(c.pods, pods.ByClaim, pods.ClaimKeys)
}

// Run implements controller.Controller.
func (c *claims) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.informer.Informer(), func(_, claim *v1.PersistentVolumeClaim) {
			if claim != nil {
				c.queue.Add(cache.MetaObjectToName(claim))
			}
		}),
		controller.On(c.pods, func(old, new *v1.Pod) {
			if old != nil && new != nil && isShutDown(old) == isShutDown(new) && podquery.IsFinished(old) == podquery.IsFinished(new) {
				return
			}
			pod := cmp.Or(new, old)
			for name := range podquery.ClaimNames(pod) {
				c.queue.Add(controller.Key{Namespace: pod.Namespace, Name: name})
			}
		}),
	}, c.queue.Workers(1))
}

// sync protects a claim and shows whether it is used. It collects claims that are being
// deleted, so that those of a namespace are released together.
func (c *claims) sync(ctx context.Context, key controller.Key) error {
	if key.Name == "" {
		return c.releaseUnused(ctx, key.Namespace)
	}
	claim, err := c.informer.Lister().PersistentVolumeClaims(key.Namespace).Get(key.Name)
	switch {
	case err != nil:
		return controller.IgnoreNotFound(err)
	case claim.DeletionTimestamp != nil:
		if c.leaving[key.Namespace] == nil {
			c.leaving[key.Namespace] = sets.New[string]()
		}
		c.leaving[key.Namespace].Insert(key.Name)
		c.queue.Add(controller.Key{Namespace: key.Namespace})
		return nil
	case slices.Contains(claim.Finalizers, claimFinalizer) && c.env.Features.Enabled(feature.PersistentVolumeClaimUnusedSinceTime):
		users, err := pods.OfClaim(c.pods, claim)
		if err != nil {
			return err
		}
		return showUse(ctx, c.env.Client.Kubernetes.CoreV1().PersistentVolumeClaims(key.Namespace), claim,
			slices.ContainsFunc(users, func(p *v1.Pod) bool { return references(p, claim) }))
	}
	return c.protect(ctx, claim, nil) // nobody asks whether it is used
}

// releaseUnused removes the finalizer from the claims of a namespace that are being deleted
// and that no pod uses. The cache of pods may be stale, and the removal cannot be undone, so it
// reads the pods once for all of them, after their deletion: later pods do not use them.
func (c *claims) releaseUnused(ctx context.Context, namespace string) error {
	names := c.leaving[namespace]
	var leaving []*v1.PersistentVolumeClaim
	for _, name := range sets.List(names) {
		claim, err := c.informer.Lister().PersistentVolumeClaims(namespace).Get(name)
		switch {
		case apierrors.IsNotFound(err):
			names.Delete(name)
		case err != nil:
			return err
		default:
			leaving = append(leaving, claim)
		}
	}
	var fresh *v1.PodList
	release := func(claim *v1.PersistentVolumeClaim) error {
		return c.protect(ctx, claim, func() (bool, error) {
			users, err := pods.OfClaim(c.pods, claim)
			if err != nil || slices.ContainsFunc(users, func(p *v1.Pod) bool { return uses(p, claim) }) {
				return true, err
			}
			if fresh == nil {
				if fresh, err = c.env.Client.Kubernetes.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); err != nil {
					fresh = nil
					return true, err
				}
			}
			return slices.ContainsFunc(fresh.Items, func(p v1.Pod) bool { return uses(&p, claim) }), nil
		})
	}
	var errs []error
	for _, claim := range leaving {
		if err := release(claim); err != nil {
			errs = append(errs, err)
			continue
		}
		names.Delete(claim.Name)
	}
	if names.Len() == 0 {
		delete(c.leaving, namespace)
	}
	return errors.Join(errs...)
}

// protect adds or removes the finalizer of a claim; see the function protect.
func (c *claims) protect(ctx context.Context, claim *v1.PersistentVolumeClaim, inUse func() (bool, error)) error {
	return protect(claim, claimFinalizer, inUse, func(finalizers []string) error {
		next := claim.DeepCopy()
		next.Finalizers = finalizers
		_, err := c.env.Client.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
		return err
	})
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
