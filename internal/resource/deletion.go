package resource

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/timespan"
)

// DeletionAction is what a deletion does to an object.
type DeletionAction int8

// What a deletion does.
const (
	DeleteNow  DeletionAction = iota // the object goes
	MarkObject                       // the Deletion's object replaces it; it goes later
	LeaveAsIs                        // it is going already, and not later than asked for
)

// Deletion is the decision about a deletion. Object is a copy of the object
// with its marks of deletion; nil if it goes without any.
type Deletion struct {
	Action DeletionAction
	Object Object
}

// BeforeDelete decides what a deletion does: an object with finalizers waits
// for them, one of a kind with a grace period for that, others go at once;
// some kinds decide themselves. old and options are not changed.
func BeforeDelete(r *Resource, old Object, options *metav1.DeleteOptions, now time.Time) Deletion {
	applied := *options
	options = &applied
	if g := options.GracePeriodSeconds; g != nil && *g < 0 {
		options.GracePeriodSeconds = new(int64(1))
	}
	obj := old.DeepCopyObject().(Object)
	if r.BeforeDelete != nil {
		if d, decided := r.BeforeDelete(obj, options, now); decided {
			return d
		}
	}
	graceful, pending := applyGrace(r, obj, options, now)
	if pending {
		return Deletion{Action: LeaveAsIs}
	}
	obj.SetFinalizers(DeletionFinalizers(obj, options, r.DefaultPropagation))
	switch {
	case len(obj.GetFinalizers()) > 0:
		if !graceful {
			MarkAsDeleting(obj, now)
		}
		return Deletion{MarkObject, obj}
	case !graceful:
		return Deletion{Action: DeleteNow}
	case *options.GracePeriodSeconds > 0:
		return Deletion{MarkObject, obj}
	}
	return Deletion{DeleteNow, obj}
}

// DeletesDuringUpdate says that an update took away what a deleted object
// waited for.
func DeletesDuringUpdate(r *Resource, obj, old Object) bool {
	if old.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 || r.HasFinalizers != nil && r.HasFinalizers(obj) {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// applyGrace sets the deletion time of an object whose kind has a grace
// period, and options' GracePeriodSeconds to what was applied. pending says
// that it is being deleted and stays as it is.
func applyGrace(r *Resource, obj Object, options *metav1.DeleteOptions, now time.Time) (graceful, pending bool) {
	if r.GracePeriod == nil {
		return false, false
	}
	if obj.GetDeletionTimestamp() != nil {
		return shortenGrace(obj, options, now)
	}
	grace := r.GracePeriod(obj, options)
	options.GracePeriodSeconds = &grace
	at := Seconds(now.Add(timespan.Seconds(grace)))
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(new(grace))
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// shortenGrace is a second DELETE: it can only bring the end nearer.
func shortenGrace(obj Object, options *metav1.DeleteOptions, now time.Time) (graceful, pending bool) {
	had := obj.GetDeletionGracePeriodSeconds()
	if had == nil || *had == 0 {
		return false, false
	}
	if options.GracePeriodSeconds == nil {
		options.GracePeriodSeconds = had
		return false, true
	}
	period := *options.GracePeriodSeconds
	if period >= *had {
		return false, true
	}
	at := obj.GetDeletionTimestamp().Add(-timespan.Seconds(*had)).Add(timespan.Seconds(period))
	if at.Before(now) {
		at = now
		if period != 0 {
			period = 1
		}
	}
	deleted := Seconds(at)
	obj.SetDeletionTimestamp(&deleted)
	obj.SetDeletionGracePeriodSeconds(&period)
	return true, false
}

// MarkAsDeleting marks an object without a grace period that waits for
// finalizers.
func MarkAsDeleting(obj Object, now time.Time) {
	deleted := obj.GetDeletionTimestamp()
	if deleted == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if deleted == nil || deleted.After(now) {
		at := Seconds(now)
		obj.SetDeletionTimestamp(&at)
	}
	obj.SetDeletionGracePeriodSeconds(new(int64(0)))
}

// Seconds cuts a time to what the API can express.
func Seconds(t time.Time) metav1.Time { return metav1.Time{Time: time.Unix(t.Unix(), 0)} }

// DeletionFinalizers returns the finalizers of an object that is to be deleted:
// its own with those that the garbage collector acts upon, as the propagation
// policy demands, which is byDefault if nothing else is said.
func DeletionFinalizers(obj Object, options *metav1.DeleteOptions, byDefault metav1.DeletionPropagation) []string {
	had := obj.GetFinalizers()
	policy := propagation(had, options, byDefault)
	var kept []string
	for _, f := range had {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			kept = append(kept, f)
		}
	}
	switch policy {
	case metav1.DeletePropagationOrphan:
		kept = append(kept, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		kept = append(kept, metav1.FinalizerDeleteDependents)
	}
	if sameSet(kept, had) {
		return had
	}
	return kept
}

func sameSet(a, b []string) bool {
	in := func(set []string) func(string) bool {
		return func(s string) bool { return !slices.Contains(set, s) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

// propagation is what happens to the dependents: what the options say, else
// what the object's finalizers say, else the kind's default.
func propagation(finalizers []string, options *metav1.DeleteOptions, byDefault metav1.DeletionPropagation) metav1.DeletionPropagation {
	if orphan := options.OrphanDependents; orphan != nil { //nolint:staticcheck // older clients use it
		if *orphan {
			return metav1.DeletePropagationOrphan
		}
		return metav1.DeletePropagationBackground
	}
	if options.PropagationPolicy != nil {
		return *options.PropagationPolicy
	}
	for _, f := range finalizers {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return metav1.DeletePropagationOrphan
		case metav1.FinalizerDeleteDependents:
			return metav1.DeletePropagationForeground
		}
	}
	return byDefault
}
