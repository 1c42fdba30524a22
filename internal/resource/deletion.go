package resource

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/coracle-io/coracle/internal/timespan"
)

// DeletionAction says whether and how a deletion changes an object.
type DeletionAction int8

// The actions of a deletion.
const (
	DeleteNow  DeletionAction = iota // the object goes
	MarkObject                       // the Deletion's object replaces it; it goes later
	LeaveAsIs                        // it is being deleted already, with the requested or a shorter grace period
)

// Deletion is the decision about a deletion. Object is a copy of the object
// with its deletion timestamp, grace period and finalizers set; it is nil if
// the object is deleted without any.
type Deletion struct {
	Action DeletionAction
	Object Object
}

// BeforeDelete decides what a deletion does. An object with finalizers waits
// for them, an object of a kind with a grace period waits for its end, and
// others are deleted at once. Some kinds decide for themselves. BeforeDelete
// does not change old and options.
func BeforeDelete(r *Resource, old Object, options *metav1.DeleteOptions, now time.Time) Deletion {
	applied := *options
	options = &applied
	if g := options.GracePeriodSeconds; g != nil && *g < 0 {
		options.GracePeriodSeconds = new(int64(1))
	}
	obj := old.DeepCopyObject().(Object)
	if r.DeleteStrategy.BeforeDelete != nil {
		if d, decided := r.DeleteStrategy.BeforeDelete(obj, options, now); decided {
			return d
		}
	}
	graceful, pending := applyGrace(r, obj, options, now)
	if pending {
		return Deletion{Action: LeaveAsIs}
	}
	obj.SetFinalizers(DeletionFinalizers(obj, options, r.DeleteStrategy.DefaultPropagation))
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

// DeletesDuringUpdate reports whether an update removed the last thing that a
// deleted object waited for.
func DeletesDuringUpdate(r *Resource, obj, old Object) bool {
	if old.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 || r.DeleteStrategy.HasFinalizers != nil && r.DeleteStrategy.HasFinalizers(obj) {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// applyGrace sets the deletion time of an object whose kind has a grace
// period, and sets options.GracePeriodSeconds to the period that applies.
// pending means that the object is being deleted already and stays as it is.
func applyGrace(r *Resource, obj Object, options *metav1.DeleteOptions, now time.Time) (graceful, pending bool) {
	if r.DeleteStrategy.GracePeriod == nil {
		return false, false
	}
	if obj.GetDeletionTimestamp() != nil {
		return shortenGrace(obj, options, now)
	}
	grace := r.DeleteStrategy.GracePeriod(obj, options)
	options.GracePeriodSeconds = &grace
	at := Seconds(now.Add(timespan.Seconds(grace)))
	obj.SetDeletionTimestamp(&at)
	obj.SetDeletionGracePeriodSeconds(new(grace))
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// shortenGrace handles a repeated DELETE, which can only shorten the grace
// period.
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

// MarkAsDeleting marks an object that waits for finalizers and has no grace
// period.
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

// Seconds truncates a time to whole seconds, the precision of metav1.Time.
func Seconds(t time.Time) metav1.Time { return metav1.Time{Time: time.Unix(t.Unix(), 0)} }

// DeletionFinalizers returns the finalizers of an object that is being
// deleted. It replaces those that the garbage collector acts on by the one for
// the propagation policy, which is byDefault if neither the options nor the
// object name one.
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

// KeepFinalizers returns options that neither add nor remove a finalizer that
// the garbage collector acts on.
func KeepFinalizers(obj Object, options *metav1.DeleteOptions) *metav1.DeleteOptions {
	kept := *options
	kept.OrphanDependents = nil //nolint:staticcheck // older clients use it
	kept.PropagationPolicy = new(propagation(obj.GetFinalizers(), &metav1.DeleteOptions{}, metav1.DeletePropagationBackground))
	return &kept
}

func sameSet(a, b []string) bool {
	return sets.New(a...).Equal(sets.New(b...))
}

// propagation returns the propagation policy of a deletion: the one in the options,
// else the one that the object's finalizers ask for, else the default of the kind.
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
