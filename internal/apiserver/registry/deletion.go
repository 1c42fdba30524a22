package registry

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/timespan"
)

// deletionAction is what a DELETE does to an object.
type deletionAction int8

const (
	deleteNow deletionAction = iota // the object goes
	mark                            // obj replaces it; it goes later
	leave                           // it is going already, and not later than asked for
)

// deletion is the decision about a DELETE. obj is a copy of the object with
// its marks of deletion; nil if it goes without any.
type deletion struct {
	action deletionAction
	obj    resource.Object
}

// beforeDelete decides what a DELETE does: an object with finalizers waits
// for them, one of a kind with a grace period for that, others go at once.
// options stay what the client sent: a decision on another state of the object
// begins with them again.
func beforeDelete(r *resource.Resource, old resource.Object, options *metav1.DeleteOptions, now time.Time) deletion {
	applied := *options
	options = &applied
	if g := options.GracePeriodSeconds; g != nil && *g < 0 {
		options.GracePeriodSeconds = ptrTo(int64(1))
	}
	obj := old.DeepCopyObject().(resource.Object)
	if ns, ok := obj.(*corev1.Namespace); ok {
		return beforeNamespaceDelete(ns, options, r, now)
	}
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && crd.DeletionTimestamp == nil {
		return beforeDefinitionDelete(crd, now)
	}
	graceful, pending := applyGrace(r, obj, options, now)
	if pending {
		return deletion{action: leave}
	}
	obj.SetFinalizers(deletionFinalizersForGarbageCollection(r, obj, options))
	switch {
	case len(obj.GetFinalizers()) > 0:
		if !graceful {
			markAsDeleting(obj, now)
		}
		return deletion{mark, obj}
	case !graceful:
		return deletion{action: deleteNow}
	case *options.GracePeriodSeconds > 0:
		return deletion{mark, obj}
	}
	return deletion{deleteNow, obj}
}

// applyGrace sets the deletion time of an object whose kind has a grace
// period, and options' GracePeriodSeconds to what was applied. pending says
// that it is being deleted and stays as it is.
func applyGrace(r *resource.Resource, obj resource.Object, options *metav1.DeleteOptions, now time.Time) (graceful, pending bool) {
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
	obj.SetDeletionGracePeriodSeconds(ptrTo(grace))
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// shortenGrace is a second DELETE: it can only bring the end nearer.
func shortenGrace(obj resource.Object, options *metav1.DeleteOptions, now time.Time) (graceful, pending bool) {
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

// markAsDeleting marks an object without a grace period that waits for finalizers.
func markAsDeleting(obj resource.Object, now time.Time) {
	deleted := obj.GetDeletionTimestamp()
	if deleted == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if deleted == nil || deleted.After(now) {
		at := Seconds(now)
		obj.SetDeletionTimestamp(&at)
	}
	obj.SetDeletionGracePeriodSeconds(ptrTo(int64(0)))
}

// Seconds cuts a time to what the API can express.
func Seconds(t time.Time) metav1.Time { return metav1.Time{Time: time.Unix(t.Unix(), 0)} }

func ptrTo[T any](v T) *T { return &v }

// deletionFinalizersForGarbageCollection returns the finalizers of an object with those that the
// garbage collector acts upon, as the propagation policy demands.
func deletionFinalizersForGarbageCollection(r *resource.Resource, obj resource.Object, options *metav1.DeleteOptions) []string {
	had := obj.GetFinalizers()
	policy := propagation(r, had, options)
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
func propagation(r *resource.Resource, finalizers []string, options *metav1.DeleteOptions) metav1.DeletionPropagation {
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
	return r.DefaultPropagation
}

// shouldDeleteDuringUpdate says that an update took away what a deleted object waited for.
func shouldDeleteDuringUpdate(obj, old resource.Object) bool {
	if len(obj.GetFinalizers()) > 0 || old.GetDeletionTimestamp() == nil {
		return false
	}
	if ns, ok := obj.(*corev1.Namespace); ok && len(ns.Spec.Finalizers) > 0 {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// beforeDefinitionDelete marks a custom resource definition as going away. It goes
// when all its objects have.
func beforeDefinitionDelete(crd *apiextensionsv1.CustomResourceDefinition, now time.Time) deletion {
	markAsDeleting(crd, now)
	if !apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	apihelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
		Type:               apiextensionsv1.Terminating,
		Status:             apiextensionsv1.ConditionTrue,
		Reason:             "InstanceDeletionPending",
		Message:            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
		LastTransitionTime: Seconds(now),
	})
	return deletion{mark, crd}
}

// beforeNamespaceDelete marks a namespace as terminating. It goes when its
// content is gone and the namespace controller has finalized it.
func beforeNamespaceDelete(ns *corev1.Namespace, options *metav1.DeleteOptions, r *resource.Resource, now time.Time) deletion {
	if ns.DeletionTimestamp == nil {
		at := Seconds(now)
		ns.DeletionTimestamp = &at
		ns.Status.Phase = corev1.NamespaceTerminating
		ns.Finalizers = deletionFinalizersForGarbageCollection(r, ns, options)
		if len(ns.Spec.Finalizers) == 0 && len(ns.Finalizers) == 0 {
			return deletion{deleteNow, ns}
		}
		return deletion{mark, ns}
	}
	if len(ns.Spec.Finalizers) > 0 || len(ns.Finalizers) > 0 {
		return deletion{action: leave}
	}
	return deletion{deleteNow, ns}
}
