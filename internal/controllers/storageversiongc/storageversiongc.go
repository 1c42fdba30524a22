// Package storageversiongc is the storage version garbage collector (KEP-2339). A
// StorageVersion has, for each API server, the version in which that server stores the
// objects of a resource. The controller removes the entries of servers whose identity Lease
// is gone, and StorageVersions without entries. It does nothing without the gate
// StorageVersionAPI.
package storageversiongc

import (
	"context"
	"fmt"
	"slices"
	"time"

	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/feature"
)

// identityLabel is the label of the identity Leases of API servers (KEP-1965), with this value.
const (
	identityLabel = "apiserver.kubernetes.io/identity"
	identityOf    = "kube-apiserver"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "storageversion-garbage-collector-controller",
		Aliases:        []string{"storage-version-gc"},
		ServiceAccount: "storage-version-garbage-collector",
		EventSource:    "storage-version-garbage-collector",
		New: func(env *controller.Env) (controller.Controller, error) {
			return &collector{env: env}, nil
		},
	}
}

type collector struct{ env *controller.Env }

// Run implements controller.Controller. It does nothing where StorageVersions are not served.
func (c *collector) Run(ctx context.Context) error {
	if served, err := c.env.WaitUnlessServed(ctx, internalv1alpha1.SchemeGroupVersion.WithResource("storageversions"), feature.StorageVersionAPI); !served {
		return err
	}
	versions := c.env.Client.Informers.Internal().V1alpha1().StorageVersions().Informer()
	leases := c.env.Client.Informers.Coordination().V1().Leases()
	lister := leases.Lister().Leases(metav1.NamespaceSystem)
	queue := controller.NewQueue(c.env.Queues, "storage_version_garbage_collector_storageversions", controller.Existing[string](versions, func(ctx context.Context, v *internalv1alpha1.StorageVersion) error {
		return c.collect(ctx, lister, v)
	}))
	return controller.Serve(ctx, []controller.Source{
		controller.On(versions, func(_, v *internalv1alpha1.StorageVersion) {
			if v != nil {
				queue.Add(v.Name)
			}
		}),
		controller.On(leases.Informer(), func(old, lease *coordinationv1.Lease) {
			if old == nil || !identifies(old) || lease != nil && identifies(lease) {
				return
			}
			for _, o := range versions.GetIndexer().List() {
				if v, ok := o.(*internalv1alpha1.StorageVersion); ok && slices.ContainsFunc(v.Status.StorageVersions, func(s internalv1alpha1.ServerStorageVersion) bool { return s.APIServerID == old.Name }) {
					queue.Add(v.Name)
				}
			}
		}),
	}, queue.Workers(1))
}

// identifies reports whether a Lease is the identity of an API server.
func identifies(lease *coordinationv1.Lease) bool {
	return lease.Namespace == metav1.NamespaceSystem && lease.Labels[identityLabel] == identityOf
}

// collect removes the entries of servers that are gone.
func (c *collector) collect(ctx context.Context, leases coordinationlisters.LeaseNamespaceLister, v *internalv1alpha1.StorageVersion) error {
	var left []internalv1alpha1.ServerStorageVersion
	for _, s := range v.Status.StorageVersions {
		present, err := c.serverExists(ctx, leases, s.APIServerID)
		if err != nil {
			return fmt.Errorf("reading the lease of API server %s: %w", s.APIServerID, err)
		}
		if present {
			left = append(left, s)
		}
	}
	api := c.env.Client.Kubernetes.InternalV1alpha1().StorageVersions()
	switch len(left) {
	case len(v.Status.StorageVersions):
		return nil
	case 0:
		// A server may have added itself since.
		return controller.IgnoreNotFoundOrConflict(api.Delete(ctx, v.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion},
		}))
	}
	next := v.DeepCopy()
	next.Status.StorageVersions = left
	setCommonVersion(next, time.Now())
	_, err := api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	return controller.IgnoreNotFoundOrConflict(err)
}

// serverExists reports whether the API server with an identity exists. It asks the API server
// if the cache does not show the Lease, which may be new.
func (c *collector) serverExists(ctx context.Context, leases coordinationlisters.LeaseNamespaceLister, id string) (bool, error) {
	if lease, err := leases.Get(id); err == nil && identifies(lease) {
		return true, nil
	}
	lease, err := c.env.Client.Kubernetes.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && identifies(lease), err
}

// setCommonVersion sets the version in which all servers store the objects, if they agree, and
// the condition that says so.
func setCommonVersion(v *internalv1alpha1.StorageVersion, now time.Time) {
	before := v.Status.CommonEncodingVersion
	first := v.Status.StorageVersions[0].EncodingVersion
	condition := internalv1alpha1.StorageVersionCondition{
		Type: internalv1alpha1.AllEncodingVersionsEqual, Status: internalv1alpha1.ConditionTrue, ObservedGeneration: v.Generation,
		LastTransitionTime: metav1.NewTime(now), Reason: "CommonEncodingVersionSet", Message: "Common encoding version set",
	}
	v.Status.CommonEncodingVersion = &first
	if slices.ContainsFunc(v.Status.StorageVersions, func(s internalv1alpha1.ServerStorageVersion) bool { return s.EncodingVersion != first }) {
		v.Status.CommonEncodingVersion = nil
		condition.Status, condition.Reason, condition.Message = internalv1alpha1.ConditionFalse, "CommonEncodingVersionUnset", "Common encoding version unset"
	}
	at := slices.IndexFunc(v.Status.Conditions, func(c internalv1alpha1.StorageVersionCondition) bool { return c.Type == condition.Type })
	if at < 0 {
		v.Status.Conditions = append(v.Status.Conditions, condition)
		return
	}
	same := before == nil || v.Status.CommonEncodingVersion == nil || *before == first
	if have := v.Status.Conditions[at]; have.Status == condition.Status && same {
		condition.LastTransitionTime = have.LastTransitionTime
	}
	v.Status.Conditions[at] = condition
}
