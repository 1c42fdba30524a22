package resource

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Strategy holds the rules for creating and updating objects, as the create
// and update strategies of upstream's registries do. In a Definition any
// function may be nil, which is no rule.
type Strategy[T Object] struct {
	// PrepareForCreate and PrepareForUpdate change obj into what is to be
	// stored: they clear or keep what a client may not set.
	PrepareForCreate func(r *RequestContext, obj T)
	PrepareForUpdate func(r *RequestContext, obj, old T)
	// Validate returns all errors in obj. A Resource's includes the errors of
	// the metadata, which a Definition's leaves out.
	Validate func(r *RequestContext, obj T) field.ErrorList
	// ValidateUpdate returns the reasons why obj cannot replace old. A
	// Resource's includes the errors of Validate and of the metadata. A
	// Definition's checks only what Validate cannot see (immutability), unless
	// UpdateValidatesAlone is set.
	ValidateUpdate func(r *RequestContext, obj, old T) field.ErrorList
	// Warnings returns the warnings for the client; old is nil on create.
	Warnings func(r *RequestContext, obj, old T) []string
	// ValidateName returns what is wrong with a name, or with a generateName
	// if prefix is set. In a Definition nil is the rule for DNS subdomains.
	ValidateName func(name string, prefix bool) []string

	// ForbidCreate is the reason why no object can be created at present, or "".
	ForbidCreate string
	// AllowCreateOnUpdate lets a PUT to a missing name create the object.
	AllowCreateOnUpdate bool
	// ForbidUnconditionalUpdate refuses a PUT without a resourceVersion, except in
	// the API versions UnconditionalVersions.
	ForbidUnconditionalUpdate bool
	UnconditionalVersions     []string
}

// AllowsUnconditionalUpdate reports whether a PUT in an API version needs no
// resourceVersion.
func (s *Strategy[T]) AllowsUnconditionalUpdate(version string) bool {
	return !s.ForbidUnconditionalUpdate || slices.Contains(s.UnconditionalVersions, version)
}

// DeleteStrategy holds the rules for deleting objects. Any function may be nil.
type DeleteStrategy[T Object] struct {
	// ForbidDelete returns the reason why the object of that name cannot be
	// deleted, or "". Deletions of a collection do not ask it.
	ForbidDelete func(name string) string
	// DefaultPropagation is the propagation policy of a DELETE that names none.
	// In a Definition "" is Background.
	DefaultPropagation metav1.DeletionPropagation
	// GracePeriod returns the grace period in seconds. Nil means that the kind
	// has no graceful deletion.
	GracePeriod func(obj T, options *metav1.DeleteOptions) int64
	// BeforeDelete decides about a deletion; decided is false if the rules of
	// all kinds apply. obj is a copy that it may change.
	BeforeDelete func(obj T, options *metav1.DeleteOptions, now time.Time) (d Deletion, decided bool)
	// HasFinalizers reports whether a deleted object waits for finalizers
	// outside its metadata (a namespace's spec.finalizers).
	HasFinalizers func(obj T) bool
	// ReturnDeletedObject answers a DELETE with the object in place of a Status.
	ReturnDeletedObject bool
}
