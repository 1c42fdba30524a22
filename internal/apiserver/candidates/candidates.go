// Package candidates elects the holders of Leases among their LeaseCandidates:
// coordinated leader election (KEP-4355). Candidates do not take a Lease themselves.
//
//	no holder, or expired ─► ping all ─► all answered, or electionTime ─► the best of them is the holder
//	a better candidate    ─► ping all ─► preferredHolder ─► the holder does not renew ─► expired
//
// All state is in the objects, so that several API servers may elect beside each other: the
// writes of all but one fail, and each looks again. A server remembers only when it saw what the
// objects hold, for their times are of clocks that may differ and may be set.
package candidates

import (
	"context"
	"errors"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// Upstream's times, except for the period in which elections are looked at.
const (
	period       = time.Second
	electionTime = 5 * time.Second // how long candidates may take to answer a ping
	leaseTime    = 5 * time.Second // of a Lease, until its holder renews it
	candidateAge = 30 * time.Minute
)

// elector holds when things were seen. It belongs to one goroutine.
type elector struct {
	kube kubernetes.Interface
	// seen holds when candidates renewed themselves.
	seen wallclock.Moments[types.NamespacedName]
	// renewals holds the last renewals of the Leases that have candidates, and pings the last pings
	// of candidates.
	renewals, pings sightings
}

func newElector(kube kubernetes.Interface) *elector {
	return &elector{kube: kube, renewals: sightings{}, pings: sightings{}}
}

// sightings holds when the times that objects hold now were seen first.
type sightings map[types.NamespacedName]sighting

type sighting struct {
	stored time.Time // by the clock of who wrote it
	seen   time.Time
}

// at returns when a time was seen first. One that was there before this server looked counts from
// when it was, another one from now, whatever the clock of who wrote it.
func (s sightings) at(name types.NamespacedName, stored, now time.Time) time.Time {
	last, known := s[name]
	switch {
	case !known:
		last = sighting{stored, wallclock.Past(stored, now)}
	case !last.stored.Equal(stored):
		last = sighting{stored, now}
	}
	s[name] = last
	return last.seen
}

// keep drops what was seen in objects that keep returns false for.
func (s sightings) keep(keep func(types.NamespacedName) bool) {
	maps.DeleteFunc(s, func(name types.NamespacedName, _ sighting) bool { return !keep(name) })
}

func nameOf(c *coordinationv1beta1.LeaseCandidate) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

// Run elects until ctx ends. It does nothing while LeaseCandidates are not served.
func Run(ctx context.Context, kube kubernetes.Interface) error {
	e := newElector(kube)
	supervise.Every(ctx, period, func() {
		if err := e.electAll(ctx, time.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Holders of leases cannot be elected, will try again")
		}
	})
	return nil
}

// electAll takes the next step of each election, and deletes candidates that have not
// renewed themselves for candidateAge.
func (e *elector) electAll(ctx context.Context, now time.Time) error {
	list, err := e.kube.CoordinationV1beta1().LeaseCandidates(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	there := map[types.NamespacedName]bool{}
	elections := map[types.NamespacedName][]*coordinationv1beta1.LeaseCandidate{}
	for i := range list.Items {
		c := &list.Items[i]
		name := nameOf(c)
		there[name] = true
		if c.Spec.PingTime != nil { // also while nothing is decided by it
			e.pings.at(name, c.Spec.PingTime.Time, now)
		}
		if now.Sub(e.seen.At(name, lastSeen(c), now)) > candidateAge {
			errs = append(errs, e.forget(ctx, c))
			continue
		}
		lease := types.NamespacedName{Namespace: c.Namespace, Name: c.Spec.LeaseName}
		elections[lease] = append(elections[lease], c)
	}
	isThere := func(name types.NamespacedName) bool { return there[name] }
	e.seen.Keep(isThere)
	e.pings.keep(isThere)
	e.renewals.keep(func(lease types.NamespacedName) bool { return elections[lease] != nil })
	for lease, all := range elections {
		errs = append(errs, e.elect(ctx, lease, all, now))
	}
	return errors.Join(errs...)
}

// held reports whether a Lease has a holder that has renewed it in time, by when its last renewal
// was seen.
func (e *elector) held(id types.NamespacedName, lease *coordinationv1.Lease, now time.Time) bool {
	return lease != nil && lease.Spec.RenewTime != nil && holds(&lease.Spec, e.renewals.at(id, lease.Spec.RenewTime.Time, now), now)
}

// lastSeen returns when a candidate renewed itself, or was made.
func lastSeen(c *coordinationv1beta1.LeaseCandidate) time.Time {
	if c.Spec.RenewTime == nil {
		return c.CreationTimestamp.Time
	}
	return c.Spec.RenewTime.Time
}

// forget deletes a candidate unless it has changed.
func (e *elector) forget(ctx context.Context, c *coordinationv1beta1.LeaseCandidate) error {
	return status.IgnoreRace(e.kube.CoordinationV1beta1().LeaseCandidates(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion},
	}))
}

// elect takes the next step of the election of one Lease.
func (e *elector) elect(ctx context.Context, id types.NamespacedName, all []*coordinationv1beta1.LeaseCandidate, now time.Time) error {
	leases := e.kube.CoordinationV1().Leases(id.Namespace)
	lease, err := leases.Get(ctx, id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = nil, nil
	}
	if err != nil {
		return err
	}
	next := decide(lease, all, e.held(id, lease, now), func(c *coordinationv1beta1.LeaseCandidate) time.Duration {
		return now.Sub(e.pings.at(nameOf(c), c.Spec.PingTime.Time, now))
	}, now)
	var errs []error
	for _, c := range next.ping {
		pinged := c.DeepCopy()
		pinged.Spec.PingTime = &metav1.MicroTime{Time: now}
		_, err := e.kube.CoordinationV1beta1().LeaseCandidates(c.Namespace).Update(ctx, pinged, metav1.UpdateOptions{})
		errs = append(errs, status.IgnoreRace(err))
	}
	switch {
	case next.lease == nil:
	case lease == nil:
		made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}, Spec: *next.lease}
		_, err := leases.Create(ctx, made, metav1.CreateOptions{})
		errs = append(errs, status.IgnoreRace(err))
	default:
		changed := lease.DeepCopy()
		changed.Spec = *next.lease
		_, err := leases.Update(ctx, changed, metav1.UpdateOptions{})
		errs = append(errs, status.IgnoreRace(err))
	}
	return errors.Join(errs...)
}
