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

// renew renews the Lease, creating it if it is missing. current is the version
// last written or read, nil for none. renew updates it, and sets it to nil
// after a failed update.
func (r *Reporter) renew(ctx context.Context, leases typedcoordinationv1.LeaseInterface, current **coordinationv1.Lease) error {
	now := metav1.NewMicroTime(time.Now())
	if *current == nil {
		found, err := leases.Get(ctx, r.config.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			found = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.config.Name}}
			r.setSpec(found, now)
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
	r.setSpec(next, now)
	written, err := leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		*current = nil
		return fmt.Errorf("update lease %s: %w", r.config.Name, err)
	}
	*current = written
	return nil
}

// failureLog decides which of the failures in a row are logged: the first, and
// then the next one after a pause that doubles each time.
type failureLog struct {
	next  time.Time
	pause time.Duration
}

// maxLogPause is the longest pause.
const maxLogPause = 5 * time.Minute

// due reports whether a failure at now is logged.
func (l *failureLog) due(now time.Time) bool {
	if now.Before(l.next) {
		return false
	}
	l.pause = min(max(2*l.pause, time.Second), maxLogPause)
	l.next = now.Add(l.pause)
	return true
}

// setSpec makes this node the holder and the Node object the owner.
func (r *Reporter) setSpec(l *coordinationv1.Lease, now metav1.MicroTime) {
	name, seconds := r.config.Name, r.config.Configuration.NodeLeaseDurationSeconds
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &name, &seconds, &now
	if node := r.Node(); node != nil && len(l.OwnerReferences) == 0 {
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
}
