package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// renew writes the lease, making it if it is missing. current is the version
// last known, nil for none.
func (r *Reporter) renew(ctx context.Context, leases typedcoordinationv1.LeaseInterface, current **coordinationv1.Lease) error {
	now := metav1.NewMicroTime(time.Now())
	if *current == nil {
		found, err := leases.Get(ctx, r.config.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			found = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.config.Name}}
			r.fill(found, now)
			found, err = leases.Create(ctx, found, metav1.CreateOptions{})
			if err == nil {
				*current = found
			}
			return err
		}
		if err != nil {
			return fmt.Errorf("get lease %s: %w", r.config.Name, err)
		}
		*current = found
	}
	next := (*current).DeepCopy()
	r.fill(next, now)
	written, err := leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		*current = nil
		return fmt.Errorf("update lease %s: %w", r.config.Name, err)
	}
	*current = written
	return nil
}

func (r *Reporter) fill(l *coordinationv1.Lease, now metav1.MicroTime) {
	name, seconds := r.config.Name, r.config.LeaseDuration
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &name, &seconds, &now
	if node := r.Node(); node != nil && len(l.OwnerReferences) == 0 {
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
}
