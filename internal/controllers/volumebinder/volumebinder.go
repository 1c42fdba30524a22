// Package volumebinder binds PersistentVolumeClaims to PersistentVolumes, has
// missing volumes provisioned and released ones reclaimed.
//
//	claim ◀──spec.volumeName, spec.claimRef──▶ volume
//
// Both references point to each other when a pair is bound. The volume's is
// written first, guarded by its version, so that no volume serves two claims.
// Volumes are made and deleted by external (CSI) provisioners, as upstream
// has it for every volume type.
package volumebinder

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "persistentvolume-binder-controller",
		Aliases:        []string{"persistentvolume-binder"},
		ServiceAccount: "persistent-volume-binder",
		EventSource:    "persistentvolume-controller",
		New:            newController,
	}
}

// noProvisioner is the provisioner of classes whose volumes are made by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

type binder struct {
	env     *controller.Env
	kube    kubernetes.Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	// queue has the keys of claims, and those of volumes, without a
	// namespace. One worker handles them all: two claims must not reach for
	// one volume at the same time.
	queue *controller.Queue[controller.Key]
}

func newController(env *controller.Env) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &binder{
		env: env, kube: env.Client.Kubernetes,
		claims:  informers.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: informers.Core().V1().PersistentVolumes().Lister(),
		classes: informers.Storage().V1().StorageClasses().Lister(),
	}
	c.queue = controller.NewQueue("claims", c.sync)
	return c, nil
}

// Run implements controller.Controller.
func (c *binder) Run(ctx context.Context) error {
	informers := c.env.Client.Informers
	return controller.Serve(ctx, []controller.Source{
		controller.On(informers.Core().V1().PersistentVolumeClaims().Informer(), func(old, new *v1.PersistentVolumeClaim) {
			if new == nil {
				if old.Spec.VolumeName != "" {
					c.queue.Add(controller.Key{Name: old.Spec.VolumeName})
				}
				return
			}
			c.queue.Add(cache.MetaObjectToName(new))
		}),
		controller.On(informers.Core().V1().PersistentVolumes().Informer(), func(old, new *v1.PersistentVolume) {
			if new != nil {
				c.queue.Add(controller.Key{Name: new.Name})
			}
			for _, v := range []*v1.PersistentVolume{old, new} {
				if v != nil && v.Spec.ClaimRef != nil {
					c.queue.Add(controller.Key{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name})
				}
			}
			if new != nil && new.Spec.ClaimRef == nil {
				c.wakePending()
			}
		}),
		controller.On(informers.Storage().V1().StorageClasses().Informer(), func(_, class *storage.StorageClass) {
			if class != nil {
				c.wakePending()
			}
		}),
	}, c.queue.Workers(1))
}

// wakePending queues all claims that wait for a volume.
func (c *binder) wakePending() {
	all, err := c.claims.List(labels.Everything())
	if err != nil {
		return
	}
	for _, claim := range all {
		if claim.Spec.VolumeName == "" {
			c.queue.Add(cache.MetaObjectToName(claim))
		}
	}
}

func (c *binder) sync(ctx context.Context, key controller.Key) error {
	if key.Namespace == "" {
		v, err := c.volumes.Get(key.Name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return c.syncVolume(ctx, v)
	}
	claim, err := c.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.syncClaim(ctx, claim)
}

func (c *binder) syncClaim(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName == "" {
		if _, was := claim.Annotations[bindCompleted]; was {
			return c.lose(ctx, claim, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
		}
		if claim.DeletionTimestamp != nil {
			return nil
		}
		return c.find(ctx, claim)
	}
	v, err := c.volumes.Get(claim.Spec.VolumeName)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, was := claim.Annotations[bindCompleted]
	switch {
	case err != nil && was:
		return c.lose(ctx, claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case err != nil:
		return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
	case v.Spec.ClaimRef == nil || isFor(v, claim):
		if !was && !suits(v, claim) {
			c.env.Events.Eventf(claim, v1.EventTypeWarning, "VolumeMismatch", "Cannot bind to requested volume %q: requested size, access modes or volume mode do not fit", v.Name)
			return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
		}
		return c.bind(ctx, v, claim)
	case was:
		return c.lose(ctx, claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	}
	c.env.Events.Eventf(claim, v1.EventTypeWarning, "FailedBinding", "volume %q already bound to a different claim.", v.Name)
	return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
}

// find binds a claim to a volume that suits, or has one made.
func (c *binder) find(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	var class *storage.StorageClass
	if name := classOfClaim(claim); name != "" {
		found, err := c.classes.Get(name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			class = found
		}
	}
	_, nodeKnown := claim.Annotations[selectedNode]
	waits := class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storage.VolumeBindingWaitForFirstConsumer
	volumes, err := c.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	if v := match(claim, volumes, waits && !nodeKnown); v != nil {
		return c.bind(ctx, v, claim)
	}
	// The assignment is a change of the claim, which queues it again.
	if assigned, err := c.assignDefaultClass(ctx, claim); assigned || err != nil {
		return err
	}
	switch {
	case waits && !nodeKnown:
		c.env.Events.Event(claim, v1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case classOfClaim(claim) == "":
		c.env.Events.Event(claim, v1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	case class == nil:
		c.env.Events.Eventf(claim, v1.EventTypeWarning, "ProvisioningFailed", "storageclass.storage.k8s.io %q not found", classOfClaim(claim))
	case class.Provisioner != noProvisioner:
		return c.provision(ctx, claim, class)
	}
	return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
}

// provision asks the class's provisioner, by an annotation, to make a volume.
func (c *binder) provision(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storage.StorageClass) error {
	if claim.Annotations[provisioner] != class.Provisioner {
		next := claim.DeepCopy()
		annotate(next, provisioner, class.Provisioner)
		annotate(next, betaProvisioner, class.Provisioner)
		updated, err := c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
		if err != nil {
			return ignoreNotFound(err)
		}
		claim = updated
	}
	c.env.Events.Eventf(claim, v1.EventTypeNormal, "ExternalProvisioning",
		"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.", class.Provisioner)
	return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
}

func annotate(o metav1.Object, key, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
}

// bind makes a volume and a claim point to each other, and writes both
// statuses. Each step is left out if it was taken before.
func (c *binder) bind(ctx context.Context, v *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) (err error) {
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		next := v.DeepCopy()
		if next.Spec.ClaimRef == nil {
			annotate(next, boundByController, "yes")
		}
		next.Spec.ClaimRef = &v1.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name,
			UID: claim.UID, ResourceVersion: claim.ResourceVersion,
		}
		if v, err = c.kube.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if v, err = c.setVolumePhase(ctx, v, v1.VolumeBound, ""); err != nil {
		return err
	}
	if _, was := claim.Annotations[bindCompleted]; !was || claim.Spec.VolumeName != v.Name {
		next := claim.DeepCopy()
		if next.Spec.VolumeName != v.Name {
			next.Spec.VolumeName = v.Name
			annotate(next, boundByController, "yes")
		}
		annotate(next, bindCompleted, "yes")
		if claim, err = c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return c.setClaimPhase(ctx, claim, v1.ClaimBound, v)
}

func (c *binder) lose(ctx context.Context, claim *v1.PersistentVolumeClaim, reason, message string) error {
	if claim.Status.Phase != v1.ClaimLost {
		c.env.Events.Event(claim, v1.EventTypeWarning, reason, message)
	}
	return c.setClaimPhase(ctx, claim, v1.ClaimLost, nil)
}

// setClaimPhase writes a claim's status. The volume, if there is one, gives
// access modes and capacity.
func (c *binder) setClaimPhase(ctx context.Context, claim *v1.PersistentVolumeClaim, phase v1.PersistentVolumeClaimPhase, v *v1.PersistentVolume) error {
	next := claim.DeepCopy()
	next.Status.Phase = phase
	if v == nil {
		next.Status.AccessModes, next.Status.Capacity = nil, nil
	} else {
		next.Status.AccessModes = v.Spec.AccessModes
		if claim.Status.Phase != phase || len(claim.Status.Capacity) == 0 {
			next.Status.Capacity = v1.ResourceList{v1.ResourceStorage: v.Spec.Capacity[v1.ResourceStorage]}
		}
	}
	if equality.Semantic.DeepEqual(next.Status, claim.Status) {
		return nil
	}
	_, err := c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

func (c *binder) setVolumePhase(ctx context.Context, v *v1.PersistentVolume, phase v1.PersistentVolumePhase, message string) (*v1.PersistentVolume, error) {
	if v.Status.Phase == phase && v.Status.Message == message {
		return v, nil
	}
	next := v.DeepCopy()
	if next.Status.Phase != phase {
		now := metav1.Now()
		next.Status.LastPhaseTransitionTime = &now
	}
	next.Status.Phase, next.Status.Message = phase, message
	return c.kube.CoreV1().PersistentVolumes().UpdateStatus(ctx, next, metav1.UpdateOptions{})
}

func (c *binder) syncVolume(ctx context.Context, v *v1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		_, err := c.setVolumePhase(ctx, v, v1.VolumeAvailable, "")
		return ignoreNotFound(err)
	}
	claim, err := c.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) || err == nil && claim.UID != ref.UID {
		// What is reclaimed cannot be brought back: make sure first.
		claim, err = c.kube.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && claim.UID != ref.UID:
		return c.release(ctx, v)
	case err != nil:
		return err
	case claim.Spec.VolumeName == v.Name:
		_, err := c.setVolumePhase(ctx, v, v1.VolumeBound, "")
		return ignoreNotFound(err)
	case claim.Spec.VolumeName == "":
		c.queue.Add(cache.MetaObjectToName(claim))
		return nil
	}
	if _, ours := v.Annotations[boundByController]; !ours {
		next := v.DeepCopy()
		next.Spec.ClaimRef.UID = ""
		_, err := c.kube.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
		return ignoreNotFound(err)
	}
	// The claim chose another volume meanwhile.
	next := v.DeepCopy()
	next.Spec.ClaimRef = nil
	delete(next.Annotations, boundByController)
	_, err = c.kube.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

// release marks a volume whose claim is gone, and reclaims it by its policy.
func (c *binder) release(ctx context.Context, v *v1.PersistentVolume) error {
	if v.Status.Phase == v1.VolumeFailed {
		return nil
	}
	v, err := c.setVolumePhase(ctx, v, v1.VolumeReleased, "")
	if err != nil {
		return ignoreNotFound(err)
	}
	_, external := v.Annotations[provisionedBy]
	failure := ""
	switch {
	case v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRecycle:
		failure = "No recycler plugin found for the volume!"
		c.env.Events.Event(v, v1.EventTypeWarning, "VolumeFailedRecycle", failure)
	case v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete && !external && v.Spec.CSI == nil:
		failure = fmt.Sprintf("error getting deleter volume plugin for volume %q: no volume plugin matched", v.Name)
		c.env.Events.Event(v, v1.EventTypeWarning, "VolumeFailedDelete", failure)
	default:
		return nil
	}
	_, err = c.setVolumePhase(ctx, v, v1.VolumeFailed, failure)
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
