package resource

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// BeforeCreate makes obj what is stored when it is created, or says why it
// cannot be. The caller has defaulted and converted it, run admission, and
// set its name, namespace, uid and creationTimestamp.
func BeforeCreate(r *Resource, req *Request, obj Object) field.ErrorList {
	r.PrepareForCreate(req, obj)
	return ValidateCreate(r, req, obj)
}

// ValidateCreate says why obj, which PrepareForCreate has seen, cannot be
// created.
func ValidateCreate(r *Resource, req *Request, obj Object) field.ErrorList {
	if errs := r.Validate(req, obj); len(errs) > 0 {
		return errs
	}
	return ValidateMetadata(obj, r.Namespaced, NameIsPathSegment)
}

// BeforeUpdate makes obj what is stored when it replaces old, or says why it
// cannot. The caller has defaulted and converted it and run admission; obj
// has old's name, namespace and managed fields.
func BeforeUpdate(r *Resource, req *Request, obj, old Object) field.ErrorList {
	return BeforeSubresourceUpdate(r, nil, req, obj, old)
}

// BeforeSubresourceUpdate is BeforeUpdate for a write to one of the object's
// subresources; without a PrepareForUpdate, as with nil, the rules are those
// of the object.
func BeforeSubresourceUpdate(r *Resource, s *Subresource, req *Request, obj, old Object) field.ErrorList {
	PrepareUpdate(r, s, req, obj, old)
	return ValidateUpdate(r, s, req, obj, old)
}

// PrepareUpdate is the part of BeforeSubresourceUpdate that changes obj.
func PrepareUpdate(r *Resource, s *Subresource, req *Request, obj, old Object) {
	prepare := r.PrepareForUpdate
	if s.updatesObject() {
		prepare = s.PrepareForUpdate
	}
	obj.SetGeneration(old.GetGeneration())
	prepare(req, obj, old)
	keepSystemMetadata(obj, old)
}

// ValidateUpdate says why obj, which PrepareUpdate has seen, cannot replace
// old.
//
// Faults of the metadata are reported once by each layer that looks at them,
// as clients know it from upstream.
func ValidateUpdate(r *Resource, s *Subresource, req *Request, obj, old Object) field.ErrorList {
	validate := r.ValidateUpdate
	if s.updatesObject() {
		validate = s.ValidateUpdate
	}
	errs := ValidateMetadata(obj, r.Namespaced, NameIsPathSegment)
	errs = append(errs, ValidateMetadataUpdate(obj, old)...)
	return append(errs, validate(req, obj, old)...)
}

// updatesObject says that the object itself is exchanged, by rules of the
// subresource's own.
func (s *Subresource) updatesObject() bool { return s != nil && s.PrepareForUpdate != nil }

// keepSystemMetadata takes from old what only the server writes.
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

// ValidateMetadata checks an object's metadata; name says what is wrong with
// a name, or with the beginning of one.
func ValidateMetadata(obj metav1.Object, namespaced bool, name func(name string, prefix bool) []string) field.ErrorList {
	if plainMetadata(obj, namespaced, name) {
		return nil
	}
	return validation.ValidateObjectMetaAccessor(obj, namespaced, name, field.NewPath("metadata"))
}

// standardFinalizers are the finalizers that need no domain.
var standardFinalizers = map[string]bool{
	"kubernetes":                     true,
	metav1.FinalizerOrphanDependents: true,
	metav1.FinalizerDeleteDependents: true,
}

// ValidateNamedMetadata is ValidateMetadata and, for its finalizers, the rule
// of the built-in kinds that all but the standard ones have a domain.
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
	if strings.Contains(name, "/") || standardFinalizers[name] {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")}
}

// ValidateMetadataUpdate checks that the fixed parts of the metadata are old's.
func ValidateMetadataUpdate(obj, old metav1.Object) field.ErrorList {
	if plainChange(obj, old) {
		return nil
	}
	return validation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata"))
}

// NameIsPathSegment says why a name, or what a generated name begins with,
// cannot be a segment of a URL's path.
func NameIsPathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

func metadataOf(obj Object) *metav1.ObjectMeta {
	return obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}
