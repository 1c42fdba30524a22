// Package volumebinder is the PersistentVolume binder controller. It binds
// PersistentVolumeClaims to PersistentVolumes, requests the provisioning of
// missing volumes and reclaims released ones.
//
//	claim ◀──spec.volumeName, spec.claimRef──▶ volume
//
// A pair is bound when both references point to each other. The controller writes
// the volume's reference first, with a precondition on its version, so that no
// volume is bound to two claims. External (CSI) provisioners create and delete
// the volumes. For claims of a class with WaitForFirstConsumer the scheduler
// chooses: it writes the volume's reference itself, or the node for which a
// volume is to be provisioned.
package volumebinder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/defaultclass"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o, measured := defaultRecyclers(), newOperations()
	return controller.Descriptor{
		Name:           "persistentvolume-binder-controller",
		Aliases:        []string{"persistentvolume-binder"},
		ServiceAccount: "persistent-volume-binder",
		EventSource:    "persistentvolume-controller",
		AddFlags:       o.addFlags,
		Validate:       o.validate,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o, measured) },
	}
}

type binder struct {
	env     *controller.Env
	kube    kubernetes.Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	nodes   corelisters.NodeLister
	pods    cache.SharedIndexInformer
	// volumeIndex has the index byTaker, and claimIndex the index byNeed.
	volumeIndex, claimIndex cache.Indexer

	recyclers *recyclers
	measured  *operations
	// failed holds when the reclaiming of volumes, by their names, failed.
	failed wallclock.Moments[string]
	// removeAll removes a directory of the host and everything in it.
	removeAll func(path string) error
	// queue holds the keys of claims and of volumes; the latter have no
	// namespace. There is one worker, so that two claims never choose the same
	// volume concurrently.
	queue *controller.Queue[controller.Key]
}

func newController(env *controller.Env, o *recyclers, measured *operations) (controller.Controller, error) {
	informers := env.Client.Informers
	c := &binder{
		env: env, kube: env.Client.Kubernetes,
		claims:  informers.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: informers.Core().V1().PersistentVolumes().Lister(),
		classes: informers.Storage().V1().StorageClasses().Lister(),
		nodes:   informers.Core().V1().Nodes().Lister(),
		pods:    informers.Core().V1().Pods().Informer(),

		volumeIndex: informers.Core().V1().PersistentVolumes().Informer().GetIndexer(),
		claimIndex:  informers.Core().V1().PersistentVolumeClaims().Informer().GetIndexer(),

		recyclers: o, measured: measured, removeAll: removeTemporary,
	}
	if err := env.Expose(newCounts(c.claims, c.volumes), measured.seconds, measured.errors); err != nil {
		return nil, err
	}
	c.queue = controller.NewQueue(env.Queues, "claims", c.sync)
	return c, errors.Join(
		env.Index(c.pods, pods.ByClaim, pods.ClaimKeys),
		env.Index(informers.Core().V1().PersistentVolumes().Informer(), byTaker, takers),
		env.Index(informers.Core().V1().PersistentVolumeClaims().Informer(), byNeed, needs),
	)
}

// Run implements controller.Controller.
func (c *binder) Run(ctx context.Context) error {
	informers := c.env.Client.Informers
	return controller.Serve(ctx, []controller.Source{
		controller.On(informers.Core().V1().PersistentVolumeClaims().Informer(), func(old, new *v1.PersistentVolumeClaim) {
			if new == nil {
				c.measured.forget(cache.MetaObjectToName(old))
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
				c.enqueueNeeding(ofVolume(new.Name))
			} else {
				c.measured.succeeded(controller.Key{Name: old.Name})
				c.failed.Forget(old.Name)
			}
			for _, v := range []*v1.PersistentVolume{old, new} {
				if v != nil && v.Spec.ClaimRef != nil {
					c.queue.Add(controller.Key{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name})
				}
			}
			if new != nil && new.Spec.ClaimRef == nil {
				c.enqueueNeeding(ofClass(volume.GetPersistentVolumeClass(new)))
			}
		}),
		controller.On(informers.Storage().V1().StorageClasses().Informer(), func(_, class *storage.StorageClass) {
			if class == nil {
				return
			}
			c.enqueueNeeding(ofClass(class.Name))
			if defaultclass.IsStorage(class) {
				c.enqueueNeeding(ofClass("")) // claims without a class get this one
			}
		}),
		controller.On(informers.Core().V1().Pods().Informer(), func(old, pod *v1.Pod) {
			if name := recycledBy(cmp.Or(pod, old)); name != "" {
				c.queue.Add(controller.Key{Name: name})
			}
			if old == nil && pod.Spec.NodeName == "" { // its claims may have waited for it
				for claim := range podquery.ClaimNames(pod) {
					c.queue.Add(controller.Key{Namespace: pod.Namespace, Name: claim})
				}
			}
		}),
		controller.On(informers.Core().V1().Nodes().Informer(), func(old, node *v1.Node) {
			if node == nil { // volumes may have been requested for it
				c.enqueueNeeding(ofNode(old.Name))
			}
		}),
	}, c.queue.Workers(1))
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
		if v, err = c.migrateVolume(ctx, v); err != nil {
			return controller.IgnoreNotFound(err)
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
	if claim, err = c.migrateClaim(ctx, claim); err != nil {
		return controller.IgnoreNotFound(err)
	}
	return c.syncClaim(ctx, claim)
}

func (c *binder) syncClaim(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName == "" {
		if _, was := claim.Annotations[volume.AnnBindCompleted]; was {
			return c.markLost(ctx, claim, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
		}
		if claim.DeletionTimestamp != nil {
			return nil
		}
		return c.bindOrProvision(ctx, claim)
	}
	v, err := c.volumes.Get(claim.Spec.VolumeName)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, was := claim.Annotations[volume.AnnBindCompleted]
	switch {
	case err != nil && was:
		if claim.Status.Phase != v1.ClaimLost {
			if _, err := c.kube.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return cmp.Or(err, controller.ErrStale) // the cache does not show the volume yet
			}
		}
		return c.markLost(ctx, claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case err != nil:
		return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
	case v.Spec.ClaimRef == nil || volume.IsVolumeBoundToClaim(v, claim):
		if reason := mismatch(v, claim); reason != nil && !was && v.Spec.ClaimRef == nil {
			c.env.Events.Eventf(claim, v1.EventTypeWarning, "VolumeMismatch", "Cannot bind to requested volume %q: %v", v.Name, reason)
			return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
		}
		return c.bind(ctx, v, claim)
	case was:
		return c.markLost(ctx, claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	}
	c.env.Events.Eventf(claim, v1.EventTypeWarning, "FailedBinding", "volume %q already bound to a different claim.", v.Name)
	return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
}

// bindOrProvision binds a claim to a matching volume, or requests the
// provisioning of one.
func (c *binder) bindOrProvision(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	var class *storage.StorageClass
	if name := volume.GetPersistentVolumeClaimClass(claim); name != "" {
		found, err := c.classes.Get(name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			class = found
		}
	}
	node, nodeKnown := claim.Annotations[volume.AnnSelectedNode]
	waits := class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storage.VolumeBindingWaitForFirstConsumer
	volumes, err := c.candidates(claim)
	if err != nil {
		return err
	}
	if v := match(claim, volumes, waits); v != nil {
		return c.bind(ctx, v, claim)
	}
	// The assignment changes the claim, which enqueues it again.
	if assigned, err := c.assignDefaultClass(ctx, claim); assigned || err != nil {
		return err
	}
	switch {
	case waits && !nodeKnown:
		c.reportWaiting(claim)
	case volume.GetPersistentVolumeClaimClass(claim) == "":
		c.env.Events.Event(claim, v1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	case class == nil:
		c.env.Events.Eventf(claim, v1.EventTypeWarning, "ProvisioningFailed", "storageclass.storage.k8s.io %q not found", volume.GetPersistentVolumeClaimClass(claim))
	default:
		if nodeKnown {
			if _, err := c.nodes.Get(node); apierrors.IsNotFound(err) {
				return c.reschedule(ctx, claim)
			}
		}
		return c.provision(ctx, claim, class)
	}
	return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
}

// reportWaiting says for which pods a claim waits that is bound when its first
// consumer is scheduled.
func (c *binder) reportWaiting(claim *v1.PersistentVolumeClaim) {
	users, err := pods.OfClaim(c.pods, claim)
	if err != nil {
		return
	}
	var waiting []string
	for _, pod := range users {
		if pod.Spec.NodeName == "" && !podquery.IsFinished(pod) {
			waiting = append(waiting, pod.Name)
		}
	}
	slices.Sort(waiting)
	switch len(waiting) {
	case 0:
		c.env.Events.Event(claim, v1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case 1:
		c.env.Events.Eventf(claim, v1.EventTypeNormal, "WaitForPodScheduled", "waiting for pod %s to be scheduled", waiting[0])
	default:
		c.env.Events.Eventf(claim, v1.EventTypeNormal, "WaitForPodScheduled", "waiting for pods %s to be scheduled", listed(waiting))
	}
}

// listed joins names, as many as the message of an event has room for.
func listed(names []string) string {
	const limit = 900 // of the 1,024 bytes of a message
	size := 0
	for i, name := range names {
		if size += len(name) + 1; size > limit {
			return fmt.Sprintf("%s,... (%d more)", strings.Join(names[:i], ","), len(names)-i)
		}
	}
	return strings.Join(names, ",")
}

// reschedule removes the selected node from a claim, so that the scheduler
// selects another one.
func (c *binder) reschedule(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	next := claim.DeepCopy()
	delete(next.Annotations, volume.AnnSelectedNode)
	_, err := c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}

// provision sets the annotation that requests a volume from the provisioner of
// the class.
func (c *binder) provision(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storage.StorageClass) error {
	provisioner, err := externalProvisioner(class.Provisioner)
	if err != nil {
		c.env.Events.Event(claim, v1.EventTypeWarning, "ProvisioningFailed", err.Error())
		return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
	}
	key := cache.MetaObjectToName(claim)
	c.measured.begin(key, provisioner, "provision")
	if claim.Annotations[volume.AnnStorageProvisioner] != provisioner {
		next := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, volume.AnnStorageProvisioner, provisioner)
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, volume.AnnBetaStorageProvisioner, provisioner)
		updated, err := c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
		if err != nil {
			c.measured.failed(key)
			return controller.IgnoreNotFound(err)
		}
		claim = updated
	}
	c.env.Events.Eventf(claim, v1.EventTypeNormal, "ExternalProvisioning",
		"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.", provisioner)
	return c.setClaimPhase(ctx, claim, v1.ClaimPending, nil)
}

// bind sets the references between a volume and a claim and writes both
// statuses. It skips steps that have already been taken.
func (c *binder) bind(ctx context.Context, v *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) error {
	next, dirty, err := volume.GetBindVolumeToClaim(v, claim)
	if err != nil {
		return err
	}
	if dirty {
		if v, err = c.kube.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if v, err = c.setVolumePhase(ctx, v, v1.VolumeBound, ""); err != nil {
		return err
	}
	if _, was := claim.Annotations[volume.AnnBindCompleted]; !was || claim.Spec.VolumeName != v.Name {
		next := claim.DeepCopy()
		if next.Spec.VolumeName != v.Name {
			next.Spec.VolumeName = v.Name
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, volume.AnnBoundByController, "yes")
		}
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, volume.AnnBindCompleted, "yes")
		if claim, err = c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	c.measured.succeeded(cache.MetaObjectToName(claim))
	return c.setClaimPhase(ctx, claim, v1.ClaimBound, v)
}

func (c *binder) markLost(ctx context.Context, claim *v1.PersistentVolumeClaim, reason, message string) error {
	if claim.Status.Phase != v1.ClaimLost {
		c.env.Events.Event(claim, v1.EventTypeWarning, reason, message)
	}
	return c.setClaimPhase(ctx, claim, v1.ClaimLost, nil)
}

// setClaimPhase writes the status of a claim, with the access modes, capacity and
// VolumeAttributesClass of v if it is not nil.
func (c *binder) setClaimPhase(ctx context.Context, claim *v1.PersistentVolumeClaim, phase v1.PersistentVolumeClaimPhase, v *v1.PersistentVolume) error {
	next := claim.DeepCopy()
	next.Status.Phase = phase
	if v == nil {
		next.Status.AccessModes, next.Status.Capacity = nil, nil
	} else {
		next.Status.AccessModes = v.Spec.AccessModes
		if claim.Status.Phase != phase || len(claim.Status.Capacity) == 0 {
			next.Status.Capacity = v1.ResourceList{v1.ResourceStorage: usableSize(v)}
		}
		if claim.Status.Phase != phase { // from then on, it is the resizer's
			next.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
		}
	}
	if equality.Semantic.DeepEqual(next.Status, claim.Status) {
		return nil
	}
	_, err := c.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}

// preResizeAnnotation holds the size of the file system of a volume that has grown, until the kubelet has
// enlarged the file system too.
const preResizeAnnotation = "volume.alpha.kubernetes.io/pre-resize-capacity"

// usableSize returns how much of a volume a claim can use when it is bound to it. If that is less than
// the size of the volume, the kubelet enlarges the file system.
func usableSize(v *v1.PersistentVolume) resource.Quantity {
	if size, err := amount.Parse(v.Annotations[preResizeAnnotation]); err == nil {
		return size
	}
	return v.Spec.Capacity[v1.ResourceStorage]
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
		return controller.IgnoreNotFound(err)
	}
	claim, err := c.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) || err == nil && claim.UID != ref.UID {
		// Reclaiming cannot be undone, so do not rely on the cache.
		claim, err = c.kube.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && claim.UID != ref.UID:
		return c.release(ctx, v)
	case err != nil:
		return err
	case claim.Spec.VolumeName == v.Name:
		_, err := c.setVolumePhase(ctx, v, v1.VolumeBound, "")
		return controller.IgnoreNotFound(err)
	case claim.Spec.VolumeName == "" && volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		c.env.Events.Eventf(v, v1.EventTypeWarning, "VolumeMismatch", "Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name)
		c.env.Events.Eventf(claim, v1.EventTypeWarning, "VolumeMismatch", "Cannot bind PersistentVolume %q to requested PersistentVolumeClaim %q due to incompatible volumeMode.", v.Name, claim.Name)
		return nil
	case claim.Spec.VolumeName == "":
		c.queue.Add(cache.MetaObjectToName(claim))
		return nil
	}
	// The claim is bound to another volume.
	if _, made := v.Annotations[volume.AnnDynamicallyProvisioned]; made && v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete {
		return c.release(ctx, v) // it was made for the claim, and nobody else can have it
	}
	_, err = c.kube.CoreV1().PersistentVolumes().Update(ctx, freed(v), metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}
