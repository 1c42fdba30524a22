package localvolume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coracle-io/coracle/internal/controller"
)

const (
	// interval is how often the free space is published.
	interval = time.Minute
	// settling is how long the provisioner waits after a change of its own.
	settling = time.Second
	// parts of the disk are the unit of what is published, so that a log file that
	// grows is not a write to the API server every minute.
	parts = 100
)

// createDriver creates the CSIDriver that lets the scheduler compare claims with
// the capacities of nodes (KEP-1472). One that exists stays as its users want it.
func (p *Provisioner) createDriver(ctx context.Context) error {
	_, err := p.Client.Kubernetes.StorageV1().CSIDrivers().Create(ctx, &storage.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: Name},
		Spec:       storage.CSIDriverSpec{AttachRequired: new(false), StorageCapacity: new(true)},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// classChanged enqueues a class whose capacity has to be published or removed.
func (p *Provisioner) classChanged(old, class *storage.StorageClass) {
	switch {
	case class == nil && old.Provisioner == Name:
		p.capacities.Add(old.Name)
	case class != nil && class.Provisioner == Name:
		p.capacities.Add(class.Name)
	}
}

// refresh publishes the capacities soon.
func (p *Provisioner) refresh() {
	classes, _ := p.Client.Informers.Storage().V1().StorageClasses().Lister().List(labels.Everything()) // a cache gives no errors
	for _, class := range classes {
		if class.Provisioner == Name {
			p.capacities.AddAfter(class.Name, settling)
		}
	}
}

// publish writes the capacity of this node for a class, and does it again after
// the interval. Where sizes are not enforced, a claim may be larger than what is
// free, as charts that ask for more than a laptop has: the scheduler compares the
// maximumVolumeSize, if there is one, and prefers nodes by the capacity. The
// capacities of a node that is deleted are its dependents.
func (p *Provisioner) publish(ctx context.Context, class string) error {
	api := p.Client.Kubernetes.StorageV1().CSIStorageCapacities(metav1.NamespaceSystem)
	name := p.capacityName(class)
	c, err := p.Client.Informers.Storage().V1().StorageClasses().Lister().Get(class)
	if apierrors.IsNotFound(err) || err == nil && c.Provisioner != Name {
		return controller.IgnoreNotFound(api.Delete(ctx, name, metav1.DeleteOptions{}))
	}
	if err != nil {
		return err
	}
	p.capacities.AddAfter(class, interval)
	node, err := p.Client.Kubernetes.CoreV1().Nodes().Get(ctx, p.NodeName, metav1.GetOptions{})
	if err != nil || node.Labels[v1.LabelHostname] == "" {
		return controller.IgnoreNotFound(err)
	}
	size, free, err := p.disk.room()
	if err != nil {
		return err
	}
	free -= free % max(size/parts, 1)
	want := &storage.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		StorageClassName: class,
		NodeTopology:     &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelHostname: node.Labels[v1.LabelHostname]}},
		Capacity:         resource.NewQuantity(free, resource.BinarySI),
	}
	if !p.disk.fs.enforces(p.Dir) {
		want.MaximumVolumeSize = resource.NewQuantity(math.MaxInt64, resource.BinarySI)
	}
	current, err := api.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	case !equality.Semantic.DeepEqual(current.NodeTopology, want.NodeTopology): // it cannot be changed
		if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return controller.IgnoreNotFound(err)
		}
		return controller.ErrStale
	}
	next := current.DeepCopy()
	next.Capacity, next.MaximumVolumeSize, next.OwnerReferences = want.Capacity, want.MaximumVolumeSize, want.OwnerReferences
	if equality.Semantic.DeepEqual(current, next) {
		return nil
	}
	_, err = api.Update(ctx, next, metav1.UpdateOptions{})
	return err
}

// capacityName returns the name of this node's capacity for a class.
func (p *Provisioner) capacityName(class string) string {
	sum := sha256.Sum256([]byte(p.NodeName + "/" + class))
	return "local-volumes-" + hex.EncodeToString(sum[:8])
}
