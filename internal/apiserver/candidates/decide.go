package candidates

import (
	"cmp"
	"slices"
	"time"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// step is what an election does next.
type step struct {
	ping  []*coordinationv1beta1.LeaseCandidate // candidates to ping
	lease *coordinationv1.LeaseSpec             // what the Lease is to be; nil: as it is
}

// pingAge is how long the answer to a ping, or its lack, counts.
const pingAge = 3 * electionTime

// decide returns the next step of the election of a Lease, nil if there is none yet, among
// all of its candidates. held says whether it has a holder whose time has not run out, and
// pinged how long ago a candidate was pinged. The candidates with the newest binary version
// choose the strategy; nothing is done while they differ. A Lease that is held without a
// strategy is of an election without candidates, and is left until it expires.
func decide(lease *coordinationv1.Lease, all []*coordinationv1beta1.LeaseCandidate, held bool, pinged func(*coordinationv1beta1.LeaseCandidate) time.Duration, now time.Time) step {
	var spec coordinationv1.LeaseSpec
	if lease != nil {
		spec = *lease.Spec.DeepCopy()
	}
	strategy, ok := strategyOf(all)
	if !ok || held && spec.Strategy == nil {
		return step{}
	}
	if strategy != coordinationv1.OldestEmulationVersion { // somebody else knows it and elects
		if ptr.Deref(spec.Strategy, "") == strategy {
			return step{}
		}
		spec.Strategy = &strategy
		return step{lease: &spec}
	}
	holder := ptr.Deref(spec.HolderIdentity, "")
	if held && best(all).Name == holder {
		return step{}
	}
	answered, unpinged, wait := answers(all, pinged)
	if len(unpinged) > 0 {
		return step{ping: unpinged}
	}
	if wait || len(answered) == 0 {
		return step{}
	}
	electee := best(answered).Name
	if held {
		if electee == holder || electee == ptr.Deref(spec.PreferredHolder, "") {
			return step{}
		}
		spec.PreferredHolder, spec.Strategy = &electee, &strategy
		return step{lease: &spec}
	}
	transitions := ptr.Deref(spec.LeaseTransitions, 0)
	if holder != "" && holder != electee {
		transitions++
	}
	at := metav1.MicroTime{Time: now}
	return step{lease: &coordinationv1.LeaseSpec{
		HolderIdentity: &electee, LeaseDurationSeconds: new(int32(leaseTime / time.Second)), AcquireTime: &at, RenewTime: &at,
		LeaseTransitions: &transitions, Strategy: &strategy,
	}}
}

// holds reports whether a Lease that was renewed at a time has a holder whose time has not run
// out.
func holds(s *coordinationv1.LeaseSpec, renewed, now time.Time) bool {
	if ptr.Deref(s.HolderIdentity, "") == "" || s.LeaseDurationSeconds == nil {
		return false
	}
	return !now.After(renewed.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second))
}

// answers returns the candidates that have answered their last ping, and those that have
// none that counts. wait reports whether others may still answer.
func answers(all []*coordinationv1beta1.LeaseCandidate, pinged func(*coordinationv1beta1.LeaseCandidate) time.Duration) (answered, unpinged []*coordinationv1beta1.LeaseCandidate, wait bool) {
	for _, c := range all {
		switch ping := c.Spec.PingTime; {
		case ping == nil || pinged(c) >= pingAge:
			unpinged = append(unpinged, c)
		case c.Spec.RenewTime != nil && !c.Spec.RenewTime.Before(ping):
			answered = append(answered, c)
		case pinged(c) < electionTime:
			wait = true
		}
	}
	return answered, unpinged, wait
}

// strategyOf returns the strategy of the candidates with the newest binary version. ok is
// false if they differ.
func strategyOf(all []*coordinationv1beta1.LeaseCandidate) (strategy coordinationv1.CoordinatedLeaseStrategy, ok bool) {
	newest := slices.MaxFunc(all, func(a, b *coordinationv1beta1.LeaseCandidate) int {
		return version(a.Spec.BinaryVersion).Compare(version(b.Spec.BinaryVersion))
	})
	for _, c := range all {
		if version(c.Spec.BinaryVersion).EQ(version(newest.Spec.BinaryVersion)) && c.Spec.Strategy != newest.Spec.Strategy {
			return "", false
		}
	}
	return newest.Spec.Strategy, true
}

// best returns the candidate with the oldest emulation version, then the oldest binary
// version, then the oldest one.
func best(all []*coordinationv1beta1.LeaseCandidate) *coordinationv1beta1.LeaseCandidate {
	return slices.MinFunc(all, func(a, b *coordinationv1beta1.LeaseCandidate) int {
		return cmp.Or(
			version(a.Spec.EmulationVersion).Compare(version(b.Spec.EmulationVersion)),
			version(a.Spec.BinaryVersion).Compare(version(b.Spec.BinaryVersion)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// version returns a version as a candidate writes it; the zero version if it is invalid.
func version(text string) semver.Version {
	v, err := semver.ParseTolerant(text)
	if err != nil {
		return semver.Version{}
	}
	return v
}
