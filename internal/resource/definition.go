package resource

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
)

// ObjectPointer is a pointer to a struct of k8s.io/api.
type ObjectPointer[S any] interface {
	*S
	Object
}

// Definition describes a built-in kind with its Go type: S is the struct, T the
// pointer to it. Define compiles it to a Resource. The zero value of a field
// is the usual case: no defaults, no rules, the table of name and age.
type Definition[S any, T ObjectPointer[S]] struct {
	GroupVersion schema.GroupVersion // of the hub
	Names        Names
	Cluster      bool // not namespaced
	IsNamespace  bool
	Verbs        []string // nil is all verbs of stored resources
	Gate         feature.Gate
	Action       Action
	// Other lists the served versions besides the hub, preferred first.
	Other   []Version
	Storage Storage

	// Undecodable returns why a hub object that a client sent cannot be decoded
	// although its fields have the right types, or nil.
	Undecodable func(obj T) error
	// Default sets the fields of a hub object that the user left out.
	Default func(obj T)
	// Spec returns the part of an object whose changes increment
	// metadata.generation, or a pointer to it. Nil is for kinds without a
	// generation.
	Spec   func(obj T) any
	Status Status[T]

	// UnqualifiedFinalizers allows finalizers without a domain.
	UnqualifiedFinalizers bool
	// MetadataUpdateUnchecked leaves the check that fixed metadata did not
	// change to ValidateUpdate, which runs it for all kinds. Most kinds run it a
	// second time, as upstream does, so that clients get its errors twice.
	MetadataUpdateUnchecked bool
	// UpdateValidatesAlone makes ValidateUpdate responsible for all checks of
	// an update. Otherwise the checks of a create (the name and Validate) run
	// before it.
	UpdateValidatesAlone bool
	// Strategy's PrepareForCreate and PrepareForUpdate run after the status was
	// cleared or restored.
	Strategy       Strategy[T]
	DeleteStrategy DeleteStrategy[T]
	Table          Table[T] // without Columns: Name and Created At; without Row: name and age
	FieldSelectors FieldSelectors[T]

	Subresources []SubresourceDefinition[S, T] // besides status
}

// Status describes the status of a kind.
type Status[T Object] struct {
	// Copy sets obj's status to from's. If it is set, the kind has a status
	// subresource: creates clear the status, updates of the object keep the
	// old status, and updates of the status keep everything else except
	// labels, annotations, finalizers and owner references.
	Copy func(obj, from T)
	// KeepsMetadata makes updates of the status keep labels, annotations,
	// finalizers and owner references, too.
	KeepsMetadata bool
	// SetOnCreate makes creates keep the status that the client sent (nodes).
	SetOnCreate bool
	// Prepare changes obj, whose spec and metadata are already old's, before
	// an update of the status.
	Prepare func(r *RequestContext, obj, old T)
	// Validate returns the reasons why an update of the status is refused.
	Validate func(r *RequestContext, obj, old T) field.ErrorList
	// Warnings returns the warnings for the client that has updated the status.
	Warnings func(obj T) []string
}

// SubresourceDefinition is a Subresource written with the kind's own type.
type SubresourceDefinition[S any, T ObjectPointer[S]] struct {
	Name             string
	Kind             schema.GroupVersionKind
	Verbs            []string
	Action           Action
	PrepareForUpdate func(r *RequestContext, obj, old T) // nil: not an update of the object
	ValidateUpdate   func(r *RequestContext, obj, old T) field.ErrorList
	Scale            *ScaleDefinition[S, T]
}

// ScaleDefinition is a Scale written with the kind's own type.
type ScaleDefinition[S any, T ObjectPointer[S]] struct {
	SpecReplicas   func(obj T) int32
	StatusReplicas func(obj T) int32
	Selector       func(obj T) string
	SetReplicas    func(obj T, replicas int32)
}
