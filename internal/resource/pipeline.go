package resource

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateCreate returns the reasons why obj cannot be created. The caller has
// defaulted and converted obj, run admission, set its name, namespace, uid and
// creationTimestamp, and called PrepareForCreate.
func ValidateCreate(r *Resource, req *RequestContext, obj Object) field.ErrorList {
	if errs := r.Strategy.Validate(req, obj); len(errs) > 0 {
		return errs
	}
	return ValidateMetadata(obj, r.Namespaced, NameIsPathSegment)
}

// PrepareUpdate prepares obj to replace old. The caller has defaulted and
// converted obj and run admission. obj has old's name, namespace and managed
// fields. If s is nil or has no PrepareForUpdate, the rules of the object itself
// apply.
func PrepareUpdate(r *Resource, s *Subresource, req *RequestContext, obj, old Object) {
	prepare := r.Strategy.PrepareForUpdate
	if s.updatesObject() {
		prepare = s.PrepareForUpdate
	}
	obj.SetGeneration(old.GetGeneration())
	prepare(req, obj, old)
	keepSystemMetadata(obj, old)
}

// ValidateUpdate returns the reasons why obj cannot replace old. PrepareUpdate
// must have run before.
//
// Each layer that checks the metadata reports its errors, so an error can
// appear more than once, as it does upstream.
func ValidateUpdate(r *Resource, s *Subresource, req *RequestContext, obj, old Object) field.ErrorList {
	validate := r.Strategy.ValidateUpdate
	if s.updatesObject() {
		validate = s.ValidateUpdate
	}
	errs := ValidateMetadata(obj, r.Namespaced, NameIsPathSegment)
	errs = append(errs, validateMetadataUpdate(obj, old)...)
	return append(errs, validate(req, obj, old)...)
}

// UpdateWarnings returns the warnings about an update that is valid.
func UpdateWarnings(r *Resource, s *Subresource, req *RequestContext, obj, old Object) []string {
	switch {
	case s == nil:
		return r.Strategy.Warnings(req, obj, old)
	case s.Warnings != nil:
		return s.Warnings(obj)
	}
	return nil
}

// updatesObject reports whether the subresource updates the object itself by
// rules of its own.
func (s *Subresource) updatesObject() bool { return s != nil && s.PrepareForUpdate != nil }

// keepSystemMetadata copies from old the metadata that only the server writes.
func keepSystemMetadata(obj, old Object) {
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		obj.SetCreationTimestamp(created)
	}
	if deleted := old.GetDeletionTimestamp(); !deleted.IsZero() {
		obj.SetDeletionTimestamp(deleted)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(grace)
	}
}

// ValidateMetadata checks an object's metadata. name returns what is wrong
// with a name or, if prefix is set, with a generateName.
func ValidateMetadata(obj metav1.Object, namespaced bool, name func(name string, prefix bool) []string) field.ErrorList {
	if plainMetadata(obj, namespaced, name) {
		return nil
	}
	return validation.ValidateObjectMetaAccessor(obj, namespaced, name, field.NewPath("metadata"))
}

// isStandardFinalizer reports whether a finalizer needs no domain.
func isStandardFinalizer(name string) bool {
	return name == "kubernetes" || name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents
}

// ValidateNamedMetadata is ValidateMetadata and the check of built-in kinds
// that every finalizer has a domain or is a standard one.
func ValidateNamedMetadata(obj metav1.Object, namespaced bool, name func(name string, prefix bool) []string) field.ErrorList {
	return append(ValidateMetadata(obj, namespaced, name), validateFinalizerDomains(obj)...)
}

func validateFinalizerDomains(obj metav1.Object) field.ErrorList {
	var errs field.ErrorList
	for i, finalizer := range obj.GetFinalizers() {
		errs = append(errs, ValidateFinalizerDomain(finalizer, field.NewPath("metadata", "finalizers").Index(i))...)
	}
	return errs
}

// ValidateFinalizerDomain checks that a finalizer has a domain or is a
// standard one.
func ValidateFinalizerDomain(name string, path *field.Path) field.ErrorList {
	if strings.Contains(name, "/") || isStandardFinalizer(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")}
}

// validateMetadataUpdate checks that the immutable metadata is the same as
// old's.
func validateMetadataUpdate(obj, old metav1.Object) field.ErrorList {
	if plainChange(obj, old) {
		return nil
	}
	return validation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata"))
}

// NameIsPathSegment returns the reasons why a name, or the prefix of one,
// cannot be a segment of a URL path.
func NameIsPathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

func metadataOf(obj Object) *metav1.ObjectMeta {
	return obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}
