// Package candidates elects the holders of Leases among their LeaseCandidates:
// coordinated leader election (KEP-4355). Candidates do not take a Lease themselves.
//
//	no holder, or expired ─► ping all ─► all answered, or electionTime ─► the best of them is the holder
//	a better candidate    ─► ping all ─► preferredHolder ─► the holder does not renew ─► expired
//
// All state is in the objects, so that several API servers may elect beside each other: the
// writes of all but one fail, and each looks again.
package candidates

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Upstream's times, except for the period in which elections are looked at.
const (
	period       = time.Second
	electionTime = 5 * time.Second // how long candidates may take to answer a ping
	leaseTime    = 5 * time.Second // of a Lease, until its holder renews it
	candidateAge = 30 * time.Minute
)

// Run elects until ctx ends. It does nothing while LeaseCandidates are not served.
func Run(ctx context.Context, kube kubernetes.Interface) error {
	supervise.Every(ctx, period, func() {
		if err := electAll(ctx, kube, time.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Holders of leases cannot be elected, will try again")
		}
	})
	return nil
}

// electAll takes the next step of each election, and deletes candidates that have not
// renewed themselves for candidateAge.
func electAll(ctx context.Context, kube kubernetes.Interface, now time.Time) error {
	list, err := kube.CoordinationV1beta1().LeaseCandidates(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	elections := map[types.NamespacedName][]*coordinationv1beta1.LeaseCandidate{}
	for i := range list.Items {
		c := &list.Items[i]
		if now.Sub(lastSeen(c)) > candidateAge {
			errs = append(errs, forget(ctx, kube, c))
			continue
		}
		lease := types.NamespacedName{Namespace: c.Namespace, Name: c.Spec.LeaseName}
		elections[lease] = append(elections[lease], c)
	}
	for lease, all := range elections {
		errs = append(errs, elect(ctx, kube, lease, all, now))
	}
	return errors.Join(errs...)
}

// lastSeen returns when a candidate renewed itself, or was made.
func lastSeen(c *coordinationv1beta1.LeaseCandidate) time.Time {
	if c.Spec.RenewTime == nil {
		return c.CreationTimestamp.Time
	}
	return c.Spec.RenewTime.Time
}

// forget deletes a candidate unless it has changed.
func forget(ctx context.Context, kube kubernetes.Interface, c *coordinationv1beta1.LeaseCandidate) error {
	return unlessLate(kube.CoordinationV1beta1().LeaseCandidates(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion},
	}))
}

// elect takes the next step of the election of one Lease.
func elect(ctx context.Context, kube kubernetes.Interface, id types.NamespacedName, all []*coordinationv1beta1.LeaseCandidate, now time.Time) error {
	leases := kube.CoordinationV1().Leases(id.Namespace)
	lease, err := leases.Get(ctx, id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = nil, nil
	}
	if err != nil {
		return err
	}
	next := decide(lease, all, now)
	var errs []error
	for _, c := range next.ping {
		pinged := c.DeepCopy()
		pinged.Spec.PingTime = &metav1.MicroTime{Time: now}
		_, err := kube.CoordinationV1beta1().LeaseCandidates(c.Namespace).Update(ctx, pinged, metav1.UpdateOptions{})
		errs = append(errs, unlessLate(err))
	}
	switch {
	case next.lease == nil:
	case lease == nil:
		made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}, Spec: *next.lease}
		_, err := leases.Create(ctx, made, metav1.CreateOptions{})
		errs = append(errs, unlessLate(err))
	default:
		changed := lease.DeepCopy()
		changed.Spec = *next.lease
		_, err := leases.Update(ctx, changed, metav1.UpdateOptions{})
		errs = append(errs, unlessLate(err))
	}
	return errors.Join(errs...)
}

// unlessLate returns the error of a write, nil if another writer was faster: the next look
// sees what it wrote.
func unlessLate(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
