// Package localvolume provisions PersistentVolumes in directories of a node's
// disk, as the external provisioner of a storage driver does:
//
//	claim, with the node that the scheduler selected ──► directory ──► volume, for pods on that node only
//	claim that requests more ──► limit of the directory ──► capacity of volume and claim
//	volume without its claim, policy Delete ──► directory removed ──► volume deleted
//	free space of the disk ──► CSIStorageCapacity ──► scheduler
//
// The size of a volume is enforced on file systems with project quotas.
//
// A volume's directory is made before the volume and removed before it, so that
// no data is forgotten. A finalizer keeps the volume for that long.
package localvolume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/defaultclass"
)

const (
	// Name is the provisioner's name in StorageClasses. The CSIDriver that lets the
	// scheduler ask for capacities has the name of the provisioner.
	Name = "local.coracle.io"
	// formerName is in classes of clusters from before capacities: no CSIDriver can
	// have it. The provisioner of a class cannot change.
	formerName = "coracle.io/local"
	// User is the identity whose rights a provisioner needs.
	User = "system:coracle:local-volumes"
	// DefaultClass is the name of the StorageClass that a provisioner creates
	// when it first runs.
	DefaultClass = "standard"

	finalizer = "coracle.io/local-volume"
)

// Config configures a Provisioner.
type Config struct {
	Client   *client.Client
	Events   record.EventRecorder
	NodeName string
	// Dir holds the volumes. It is made if it is missing.
	Dir string
}

// Provisioner makes and removes the volumes of a node.
type Provisioner struct {
	Config
	disk       disk
	queue      *controller.Queue[controller.Key]       // of claims, and of volumes, which have no namespace
	capacities *controller.Queue[string]               // of classes
	claims     corelisters.PersistentVolumeClaimLister // what reduce returns of all, while Run runs
}

// New returns a provisioner. It starts nothing.
func New(c Config) *Provisioner {
	p := &Provisioner{Config: c, disk: disk{dir: c.Dir, fs: projectQuotas{}}}
	p.queue = controller.NewQueue(nil, "local-volumes", p.sync)
	p.capacities = controller.NewQueueWithMaxDelay(nil, "local-volume-capacities", interval, p.publish)
	return p
}

// Run provisions until ctx ends, and then returns nil. It first creates the
// StorageClass DefaultClass if Dir does not exist yet, so that a class that the
// user deleted stays deleted.
func (p *Provisioner) Run(ctx context.Context) error {
	made, err := p.disk.made()
	if err != nil {
		return err
	}
	if err := p.createDriver(ctx); err != nil {
		return fmt.Errorf("create CSIDriver %s: %w", Name, err)
	}
	if !made {
		if err := p.createClass(ctx); err != nil {
			return fmt.Errorf("create StorageClass %s: %w", DefaultClass, err)
		}
		if err := p.disk.make(); err != nil {
			return err
		}
	}
	if !p.disk.fs.enforces(p.Dir) {
		klog.FromContext(ctx).Info("The sizes of local volumes are not enforced: their file system has no project quotas", "dir", p.Dir)
	}
	informers := p.Client.Informers
	return controller.Serve(ctx, []controller.Source{
		controller.On(informers.Storage().V1().StorageClasses().Informer(), func(old, class *storage.StorageClass) {
			if class != nil && isOwn(class.Provisioner) {
				p.enqueueRequested()
			}
			p.classChanged(old, class)
		}),
		controller.On(p.watchClaims(ctx), func(_, claim *v1.PersistentVolumeClaim) {
			if claim != nil && (p.requested(claim) || grows(claim)) {
				p.queue.Add(cache.MetaObjectToName(claim))
			}
		}),
		controller.On(informers.Core().V1().PersistentVolumes().Informer(), func(_, v *v1.PersistentVolume) {
			if v == nil || !p.ours(v) {
				return
			}
			p.queue.Add(controller.Key{Name: v.Name})
			if ref := v.Spec.ClaimRef; ref != nil { // it may have asked for more before the cache showed the volume
				p.queue.Add(controller.Key{Namespace: ref.Namespace, Name: ref.Name})
			}
		}),
	}, p.queue.Workers(4), p.capacities.Workers(1))
}

// isOwn reports whether a provisioner's name is this one's.
func isOwn(provisioner string) bool { return provisioner == Name || provisioner == formerName }

// createClass creates the StorageClass DefaultClass. It is the default unless
// the cluster has another default.
func (p *Provisioner) createClass(ctx context.Context) error {
	classes := p.Client.Kubernetes.StorageV1().StorageClasses()
	list, err := classes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	class := &storage.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: DefaultClass},
		Provisioner:          Name,
		VolumeBindingMode:    new(storage.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: new(true),
	}
	if !slices.ContainsFunc(list.Items, func(c storage.StorageClass) bool { return defaultclass.IsStorage(&c) }) {
		class.Annotations = map[string]string{defaultclass.StorageAnnotation: "true"}
	}
	_, err = classes.Create(ctx, class, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// enqueueRequested enqueues all claims that wait for a volume on this node.
func (p *Provisioner) enqueueRequested() {
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		return
	}
	for _, claim := range claims {
		if p.requested(claim) {
			p.queue.Add(cache.MetaObjectToName(claim))
		}
	}
}

// requested reports whether a volume on this node has been requested for the
// claim, and is still to be made.
func (p *Provisioner) requested(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil &&
		isOwn(claim.Annotations[volume.AnnStorageProvisioner]) && p.selected(claim.Annotations[volume.AnnSelectedNode])
}

// selected reports whether a claim with this selected node concerns this
// provisioner. A claim of a class with immediate binding has no node, and gets
// an error from every provisioner.
func (p *Provisioner) selected(node string) bool { return node == "" || node == p.NodeName }

// ours reports whether this provisioner made a volume.
func (p *Provisioner) ours(v *v1.PersistentVolume) bool {
	return isOwn(v.Annotations[volume.AnnDynamicallyProvisioned]) && v.Spec.Local != nil && v.Spec.Local.Path == p.disk.path(v.Name) &&
		v.Annotations[nodeAnnotation] == p.NodeName
}

// nodeAnnotation is the name of the node that a volume is on. Its node affinity
// has the node's label kubernetes.io/hostname, which may differ.
const nodeAnnotation = "coracle.io/node"

func (p *Provisioner) sync(ctx context.Context, key controller.Key) error {
	if key.Namespace == "" {
		v, err := p.Client.Informers.Core().V1().PersistentVolumes().Lister().Get(key.Name)
		if err != nil || !p.ours(v) {
			return controller.IgnoreNotFound(err)
		}
		return p.reclaim(ctx, v)
	}
	claim, err := p.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	switch {
	case err != nil:
		return controller.IgnoreNotFound(err)
	case grows(claim):
		return p.expand(ctx, claim)
	case p.requested(claim):
		return p.provision(ctx, claim)
	}
	return nil
}

// provision makes the volume of a claim.
func (p *Provisioner) provision(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	volumes := p.Client.Kubernetes.CoreV1().PersistentVolumes()
	if _, err := volumes.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err // it exists, and the binder is about to bind it
	}
	className := volume.GetPersistentVolumeClaimClass(claim)
	class, err := p.Client.Informers.Storage().V1().StorageClasses().Lister().Get(className)
	if err != nil {
		return controller.IgnoreNotFound(err) // the binder reports it, and a new class enqueues the claim
	}
	if !isOwn(class.Provisioner) {
		return nil // anybody may write the annotation; the binder puts the class's provisioner there
	}
	if claim.Annotations[volume.AnnSelectedNode] == "" && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storage.VolumeBindingWaitForFirstConsumer {
		return nil // the scheduler chooses again
	}
	fail := func(err error) error {
		p.Events.Eventf(claim, v1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %v", className, err)
		return err
	}
	if err := supported(claim, class); err != nil {
		_ = fail(err)
		return nil // a retry would not help
	}
	node, err := p.Client.Kubernetes.CoreV1().Nodes().Get(ctx, p.NodeName, metav1.GetOptions{})
	if err != nil {
		return fail(err)
	}
	v, err := p.volume(name, claim, class, node)
	if err != nil {
		return fail(err)
	}
	p.Events.Eventf(claim, v1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q", klog.KObj(claim))
	err = p.disk.create(name, amount.Value(claim.Spec.Resources.Requests[v1.ResourceStorage]))
	p.refresh()
	if errors.Is(err, errNoRoom) {
		_ = fail(err)
		return p.deselect(ctx, claim)
	}
	if err != nil {
		return fail(err)
	}
	if _, err := volumes.Create(ctx, v, metav1.CreateOptions{}); err != nil {
		if apierrors.IsAlreadyExists(err) { // of an attempt whose answer was lost, or of another provisioner
			there, err := volumes.Get(ctx, name, metav1.GetOptions{})
			if err != nil || p.ours(there) {
				return err
			}
			return fail(errors.Join(fmt.Errorf("a volume %s of another provisioner exists", name), p.disk.removeEmpty(name)))
		}
		if definite(err) {
			err = errors.Join(err, p.disk.removeEmpty(name))
		}
		return fail(err)
	}
	p.Events.Eventf(claim, v1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", name)
	return nil
}

// deselect lets the scheduler choose another node for a claim.
func (p *Provisioner) deselect(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	next, err := p.whole(ctx, claim)
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	delete(next.Annotations, volume.AnnSelectedNode)
	_, err = p.Client.Kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}

// definite reports whether an error says that the API server did not do what it
// was asked for. After others, such as a timeout, it may have.
func definite(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// supported returns an error that says which part of a request for a volume
// cannot be fulfilled.
func supported(claim *v1.PersistentVolumeClaim, class *storage.StorageClass) error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(claim.Annotations[volume.AnnSelectedNode] == "", "no node is selected: the StorageClass must have volumeBindingMode: WaitForFirstConsumer")
	for _, mode := range claim.Spec.AccessModes {
		refuse(mode != v1.ReadWriteOnce && mode != v1.ReadWriteOncePod, "access mode %s is not supported: want ReadWriteOnce or ReadWriteOncePod", mode)
	}
	refuse(claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == v1.PersistentVolumeBlock, "volume mode Block is not supported")
	refuse(claim.Spec.Selector != nil, "the selector of a claim is not supported")
	refuse(claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil, "the data source of a claim is not supported")
	refuse(claim.Spec.VolumeAttributesClassName != nil && *claim.Spec.VolumeAttributesClassName != "", "volume attributes classes are not supported")
	for parameter := range class.Parameters {
		refuse(true, "parameter %q of the StorageClass is not supported", parameter)
	}
	refuse(len(class.MountOptions) > 0, "mount options of the StorageClass are not supported")
	return errors.Join(errs...)
}

// volume returns the volume of a claim.
func (p *Provisioner) volume(name string, claim *v1.PersistentVolumeClaim, class *storage.StorageClass, node *v1.Node) (*v1.PersistentVolume, error) {
	ref, err := reference.GetReference(scheme.Scheme, claim)
	if err != nil {
		return nil, err
	}
	hostname := node.Labels[v1.LabelHostname]
	if hostname == "" {
		return nil, fmt.Errorf("node %s has no label %s", node.Name, v1.LabelHostname)
	}
	v := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Finalizers: []string{finalizer},
			Annotations: map[string]string{volume.AnnDynamicallyProvisioned: class.Provisioner, nodeAnnotation: p.NodeName},
		},
		Spec: v1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: claim.Spec.Resources.Requests[v1.ResourceStorage]},
			ClaimRef:                      ref,
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: p.disk.path(name)}},
			StorageClassName:              class.Name,
			VolumeMode:                    new(v1.PersistentVolumeFilesystem),
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{hostname}}},
			}}}},
		},
	}
	if class.ReclaimPolicy != nil {
		v.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	return v, nil
}

// reclaim removes the data of a volume whose claim is gone and whose policy is
// Delete, and then the volume. It lets go of a volume that the user deletes.
func (p *Provisioner) reclaim(ctx context.Context, v *v1.PersistentVolume) error {
	if !slices.Contains(v.Finalizers, finalizer) {
		return nil
	}
	erase := v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete
	switch {
	case v.DeletionTimestamp != nil && v.Status.Phase != v1.VolumeBound:
	case erase && v.Status.Phase == v1.VolumeReleased:
	default:
		return nil
	}
	volumes := p.Client.Kubernetes.CoreV1().PersistentVolumes()
	// Removal cannot be undone, so do not rely on the cache.
	current, err := volumes.Get(ctx, v.Name, metav1.GetOptions{})
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	if current.ResourceVersion != v.ResourceVersion {
		return controller.ErrStale
	}
	if erase {
		if err := p.disk.remove(v.Name); err != nil {
			p.Events.Event(v, v1.EventTypeWarning, "VolumeFailedDelete", err.Error())
			return err
		}
		p.refresh()
		if err := volumes.Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.UID))}); err != nil {
			return controller.IgnoreNotFound(err)
		}
		if current, err = volumes.Get(ctx, v.Name, metav1.GetOptions{}); err != nil {
			return controller.IgnoreNotFound(err)
		}
	}
	next := current.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	_, err = volumes.Update(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFound(err)
}
