// Package resource describes API resources: their names, served versions,
// defaults, validation, strategies and table columns. It does no I/O of its own:
// a RequestContext carries the time, and functions that may ask the authorizer.
//
// A built-in kind is a typed Definition, one file per kind in the folder of its
// group. Define compiles it to the untyped Resource that the API server works
// with. A custom resource is a Resource that package crd makes at run time from
// its CustomResourceDefinition.
//
//	request body ─decode─► served version ─Default─ToHub─► hub object
//	   create:  Strategy.PrepareForCreate ─► ValidateCreate (of the kind, then of its metadata)
//	   update:  PrepareUpdate (Strategy.PrepareForUpdate) ─► ValidateUpdate (of the metadata, then of the kind)
//	   delete:  BeforeDelete: delete now, mark, or leave as is
//	hub object ─encode─► store          hub object ─FromHub─► response
package resource

import (
	"context"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/feature"
)

// Object is implemented by every stored kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// RequestContext holds what rules know about a request besides the objects.
type RequestContext struct {
	// Context ends with the request. It is nil for requests of the server itself,
	// which have no end.
	Context   context.Context
	Now       time.Time
	User      user.Info // nil inside the server
	Namespace string
	// GroupVersion is the version that the client uses. Few rules differ by
	// version (events).
	GroupVersion schema.GroupVersion
	// NamespaceLabels returns the labels of the object's namespace. It is nil for
	// requests of the server itself, to which restrictions by such labels do not
	// apply.
	NamespaceLabels func() map[string]string
	// Authorized asks the authorizers whether the user may apply a verb to a
	// named object, for permissions that depend on an object's content. Nil
	// allows nothing.
	Authorized func(verb, group, resource, name string) bool
	// Verb is the verb of the request, such as "patch".
	Verb string
	// AuthorizePart asks the authorizers whether the user may apply a verb to a
	// part (as a subresource) of the request's kind, for permissions that depend on
	// what a write changes. Without a namespace, it is about all namespaces. It
	// returns nil or the refusal. It is nil for requests of the server itself, which
	// may change everything.
	AuthorizePart func(verb, part, namespace, name string) error
	// Features are the feature gates; nil is the defaults.
	Features *feature.Set
	// ForbidPrivileged refuses privileged containers in pods and templates
	// (--allow-privileged=false).
	ForbidPrivileged bool
	// Warn warns the client of what a rule mends, so that Strategy.Warnings cannot
	// see it. Nil drops the warnings.
	Warn func(text string)
}

// Ends returns the context that ends with the request. r may be nil.
func (r *RequestContext) Ends() context.Context {
	if r == nil || r.Context == nil {
		return context.Background()
	}
	return r.Context
}

// Resource is one API resource in all its versions, as the API server works
// with it. Its functions take hub objects with TypeMeta set.
//
// Resource differs from Definition in two ways. It is untyped, because the API
// server handles all kinds alike and custom resources have no Go type; and it
// is complete, because Define sets every function that a Definition leaves out
// unless the field says that nil has a meaning. Parts that both need are
// declared once, in the structs that both embed.
type Resource struct {
	Group string // "" is the core group
	Names
	Namespaced bool
	// IsNamespace marks the resource whose objects are namespaces: in a URL the
	// name of such an object is the namespace of what follows it.
	IsNamespace bool

	Verbs    []string  // in the order of discovery
	Versions []Version // preferred first; the one with Hub set is the hub
	// Priorities order the resource's group and versions in discovery.
	Priorities Priorities
	// Gate is the feature gate that must be on for the resource to be served,
	// or "".
	Gate feature.Gate
	// Action makes a resource virtual: it is served but not stored, and the API
	// server performs the action in place of reading or writing an object.
	Action Action

	Storage        Storage
	Strategy       Strategy[Object]
	DeleteStrategy DeleteStrategy[Object]
	Table          Table[Object]
	FieldSelectors FieldSelectors[Object]

	Subresources []Subresource
}

// Names are the names of a resource, as in a CustomResourceDefinition.
type Names struct {
	Kind       string // "Pod"
	ListKind   string // "" is the kind followed by "List"
	Plural     string // "pods"
	Singular   string // "pod"; in a Definition "" is the kind in lower case
	ShortNames []string
	Categories []string
}

// Storage says where and how objects are stored.
type Storage struct {
	// Path is the path below /registry/ ("pods", "services/specs"); in a
	// Definition "" is the plural name.
	Path string
	// StoredAsJSON stores objects as JSON although they have a protobuf form.
	// Upstream does so for kinds that were served by extension API servers.
	StoredAsJSON bool
	// Version is the version that is written; the zero value is the hub.
	Version schema.GroupVersion
	// ToStored converts an object of any version to the one that is stored,
	// without changing its argument. Nil stores objects as they are.
	ToStored func(obj Object) (Object, error)
	// TTL is how long objects are kept after a write (events); 0 is forever.
	TTL time.Duration
}

// Table is the form in which `kubectl get` shows objects. Row returns the cells
// of one object in the order of Columns.
type Table[T Object] struct {
	Columns []metav1.TableColumnDefinition
	Row     func(obj T, now time.Time) []any
	// ListRow returns what replaces Row in a list of objects, for kinds whose
	// rows depend on the other objects. Nil is Row.
	ListRow func(list iter.Seq[T]) func(obj T, now time.Time) []any
	// Conditions returns the conditions of an object's row. Nil is none.
	Conditions func(obj T) []metav1.TableRowCondition
}

// FieldSelectors are the fields that a field selector may name besides
// metadata.name and metadata.namespace.
type FieldSelectors[T Object] struct {
	// SelectableFields returns the values of all Fields.
	SelectableFields func(obj T) fields.Set
	// SelectableField returns the value of one of the Fields. It is for kinds
	// of which computing all values costs too much in lists of many objects;
	// nil means that SelectableFields is used. In a Definition it replaces
	// SelectableFields.
	SelectableField func(obj T, field string) string
	// Fields are the supported field labels. Selectors on others are refused.
	Fields []string
	// Indexed are the field labels that the watch cache keeps an index of.
	Indexed []string
}

// Version is one served version of a Resource. Group differs from the
// Resource's only for kinds that moved (events).
type Version struct {
	schema.GroupVersion
	Hub bool
	New func() Object // with TypeMeta set
	// Default sets the fields that the user left out of an object of this version.
	Default func(obj Object)
	// ToHub and FromHub convert without loss and do not change their arguments.
	// For the hub they are the identity.
	ToHub   func(obj Object) Object
	FromHub func(obj Object) Object
	// Undecodable returns why an object of this version that a client sent cannot be
	// decoded although its fields have the right types, or nil. Objects of other
	// kinds can. Nil means that all can.
	Undecodable func(obj Object) error
	// Deprecated is the warning about the use of this version, or "".
	Deprecated string
	// Priorities apply to a group that is not the Resource's.
	Priorities Priorities
	// Unserved versions are only read from the store.
	Unserved bool
	// FieldLabels are the labels of field selectors in this version, with the
	// Resource's Fields that they stand for; nil is the Fields themselves.
	FieldLabels map[string]string

	// The following are set for custom resources only.

	// Coerce brings an object that was sent by a client into the form that its
	// schema knows and returns the paths of the fields that it dropped.
	Coerce func(obj Object) (unknown []string, err error)
	// FromStored does the work of Default and ToHub for an object of this
	// version that was read from the store. It may change obj.
	FromStored func(obj Object) (Object, error)
	// Convert makes an object of any version one of this version, where that
	// can fail. It does not change what it is given.
	Convert func(obj Object) (Object, error)
	// ConvertAll is Convert for several objects that are in other versions. It is
	// set if each call is one of a webhook, so that results are worth keeping.
	ConvertAll func(objs []Object) ([]Object, error)
}

// From converts a hub object, or one of any version if the kind is a custom
// resource, to this version.
func (v *Version) From(obj Object) (Object, error) {
	if v.Convert != nil {
		return v.Convert(obj)
	}
	return v.FromHub(obj), nil
}

// Action names what the API server does for an endpoint that does not read or
// write a stored object.
type Action int8

// The actions.
const (
	NoAction       Action = iota
	ReadLog               // of a container
	UseContainer          // exec, attach and port-forward
	Proxy                 // to a server in the cluster
	ProxyNode             // to a kubelet, which can use containers
	Bind                  // give a pod its node
	Evict                 // delete a pod as far as its disruption budget allows
	IssueToken            // of a service account
	Review                // fill in the status of what is asked
	ReadComponents        // whether the parts of the control plane are healthy
	ReadMetrics           // what nodes and pods use
)

// Subresource is a part of an object with its own endpoint. It is one of:
// an update of the object itself (status, finalize, approval, resize,
// ephemeralcontainers), a mapped value (scale), or an action.
type Subresource struct {
	Name   string
	Kind   schema.GroupVersionKind // what is exchanged; zero: the resource's own kind
	Verbs  []string                // in discovery's order
	Action Action

	// PrepareForUpdate leaves in obj only those changes against old that this
	// endpoint may make. It is nil where the object itself is not exchanged
	// (scale, actions).
	PrepareForUpdate func(r *RequestContext, obj, old Object)
	ValidateUpdate   func(r *RequestContext, obj, old Object) field.ErrorList
	Warnings         func(obj Object) []string // of an update; nil: none

	// Scale maps the object to and from autoscaling/v1 Scale.
	Scale *Scale
}

// Scale reads and writes the replica counts of an object.
type Scale struct {
	SpecReplicas   func(obj Object) int32
	StatusReplicas func(obj Object) int32
	Selector       func(obj Object) string // in the string form of a label selector
	SetReplicas    func(obj Object, replicas int32)
	Unchecked      bool // negative replicas are for the rules of the object to refuse
}

// Virtual says that the objects are not stored.
func (r *Resource) Virtual() bool { return r.Action != NoAction }

// GroupVersionResource names the resource in its hub version.
func (r *Resource) GroupVersionResource() schema.GroupVersionResource {
	return r.Hub().GroupVersion.WithResource(r.Plural)
}

// GroupKind names the kind.
func (r *Resource) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// GroupResource names the resource as errors do.
func (r *Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

// Hub is the version that is stored and that the rules work on.
func (r *Resource) Hub() *Version {
	for i := range r.Versions {
		if r.Versions[i].Hub {
			return &r.Versions[i]
		}
	}
	panic("resource " + r.Plural + " has no hub version")
}

// Subresource returns the subresource of that name, or nil.
func (r *Resource) Subresource(name string) *Subresource {
	for i := range r.Subresources {
		if r.Subresources[i].Name == name {
			return &r.Subresources[i]
		}
	}
	return nil
}

// Field is the value of one selectable field.
func (r *Resource) Field(obj Object, field string) string {
	if r.FieldSelectors.SelectableField != nil {
		return r.FieldSelectors.SelectableField(obj, field)
	}
	return r.FieldSelectors.SelectableFields(obj).Get(field)
}

// Key is the storage key of an object, as upstream's storage has it.
func (r *Resource) Key(namespace, name string) string {
	if r.Namespaced {
		return "/registry/" + r.Storage.Path + "/" + namespace + "/" + name
	}
	return "/registry/" + r.Storage.Path + "/" + name
}
