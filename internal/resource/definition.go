package resource

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ObjectPointer is a pointer to a struct of k8s.io/api.
type ObjectPointer[S any] interface {
	*S
	Object
}

// Definition is a Resource written with the kind's own type. What is left out
// has the obvious meaning: no defaults, nothing to check, no extra fields.
// Functions change only their first object.
type Definition[S any, T ObjectPointer[S]] struct {
	GroupVersion schema.GroupVersion // of the hub
	Kind         string
	Plural       string
	Singular     string // "" is the lower-cased kind
	ShortNames   []string
	Categories   []string
	Cluster      bool // not namespaced
	IsNamespace  bool
	StoragePath  string // "" is Plural
	StoredAsJSON bool
	TTL          time.Duration
	Verbs        []string // nil: all of them
	Action       Action
	Gate         string

	// Other served versions than the hub, most preferred first. PreferOther
	// puts them before the hub.
	Other       []Version
	PreferOther bool

	// Default fills in what the user left out, as upstream's defaulting does.
	Default func(obj T)
	// Spec points to the part whose changes raise metadata.generation; nil for
	// kinds without a generation.
	Spec func(obj T) any
	// CopyStatus sets obj's status to from's. With it the kind has the status
	// subresource: creates start with an empty status, updates of the object
	// keep the old status, updates of the status keep everything else but
	// labels, annotations, finalizers and owner references.
	CopyStatus func(obj, from T)
	// StatusKeepsMetadata keeps labels, annotations, finalizers and owner
	// references as they are in updates of the status, too.
	StatusKeepsMetadata bool
	CreateWithStatus    bool // creates keep the status they bring (nodes)
	ValidateStatus      func(r *Request, obj, old T) field.ErrorList
	// PrepareStatus runs after the generic part of a status update.
	PrepareStatus func(r *Request, obj, old T)

	PrepareForCreate func(r *Request, obj T) // after the status was emptied
	PrepareForUpdate func(r *Request, obj, old T)
	Validate         func(r *Request, obj T) field.ErrorList
	// ValidateUpdate checks what Validate cannot see (immutability). The checks
	// of creates (the name and Validate) run before it, unless
	// UpdateValidatesAlone is set: then ValidateUpdate calls what it needs.
	ValidateUpdate       func(r *Request, obj, old T) field.ErrorList
	UpdateValidatesAlone bool
	// MetadataUpdateUnchecked leaves it to what all updates have in common to
	// check that fixed metadata stays. Other kinds check it once more, so that
	// clients are told twice.
	MetadataUpdateUnchecked bool
	Warnings                func(r *Request, obj, old T) []string
	ValidateName            func(name string, prefix bool) []string // nil: DNS subdomain
	// UnqualifiedFinalizers lets finalizers be without a domain.
	UnqualifiedFinalizers bool

	ForbidDelete              func(name string) string
	AllowCreateOnUpdate       bool
	ForbidUnconditionalUpdate bool
	DefaultPropagation        metav1.DeletionPropagation // "" is Background
	GracePeriod               func(obj T, options *metav1.DeleteOptions) int64
	BeforeDelete              func(obj T, options *metav1.DeleteOptions, now time.Time) (d Deletion, decided bool)
	HasFinalizers             func(obj T) bool
	ReturnDeletedObject       bool

	Columns []metav1.TableColumnDefinition   // nil: Name and Created At
	Row     func(obj T, now time.Time) []any // nil: name and age

	SelectableFields func(obj T) fields.Set
	// SelectableField gives one of the fields, where all of them at once are
	// too dear for lists of many objects. SelectableFields follows from it.
	SelectableField func(obj T, field string) string
	Fields          []string
	Indexed         []string

	Subresources []SubresourceDefinition[S, T] // besides status
}

// SubresourceDefinition is a Subresource written with the kind's own type.
type SubresourceDefinition[S any, T ObjectPointer[S]] struct {
	Name             string
	Kind             schema.GroupVersionKind
	Verbs            []string
	Action           Action
	PrepareForUpdate func(r *Request, obj, old T) // nil: not an update of the object
	ValidateUpdate   func(r *Request, obj, old T) field.ErrorList
	Scale            *ScaleDefinition[S, T]
}

// ScaleDefinition is a Scale written with the kind's own type.
type ScaleDefinition[S any, T ObjectPointer[S]] struct {
	SpecReplicas   func(obj T) int32
	StatusReplicas func(obj T) int32
	Selector       func(obj T) string
	SetReplicas    func(obj T, replicas int32)
}
