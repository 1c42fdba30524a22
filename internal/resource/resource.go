// Package resource describes API resources: what they are called, in which
// versions they are served, what a valid object looks like and how it may
// change. It is pure: no I/O, no clock but the one passed in.
//
// A built-in kind is written down as a typed Definition (one file a kind, in
// the folder of its group) and compiled by Define to the untyped Resource
// that the API server works with. A custom resource is a Resource made at
// run time from its CustomResourceDefinition.
//
//	request body ─decode─► served version ─Default─ToHub─► hub object
//	   create:  BeforeCreate = metadata, PrepareForCreate, Validate
//	   update:  BeforeUpdate = metadata, PrepareForUpdate, Validate, ValidateUpdate
//	   delete:  BeforeDelete = go now, be marked, or stay as it is
//	hub object ─encode─► store          hub object ─FromHub─► response
package resource

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/feature"
)

// Object is what every stored kind is.
type Object interface {
	runtime.Object
	metav1.Object
}

// Request is what a rule may know besides the objects.
type Request struct {
	// Context ends when the request does; nil inside the server is without end.
	Context   context.Context
	Now       time.Time
	User      user.Info // nil inside the server
	Namespace string
	// GroupVersion is the one that the client speaks; rules differ by it only
	// where versions promise different things (events).
	GroupVersion schema.GroupVersion
	// NamespaceLabels finds the labels of the object's namespace; nil inside the
	// server, which may do what namespaces are marked for anywhere.
	NamespaceLabels func() map[string]string
	// Authorized asks the authorizers whether the user may do a verb with a
	// name of a group's resource, for rights that follow from what an object
	// says; nil allows nothing.
	Authorized func(verb, group, resource, name string) bool
	// Features are those that are on; nil is what is on by default.
	Features *feature.Set
}

// Ends returns the context that ends when the request does. r may be nil.
func (r *Request) Ends() context.Context {
	if r == nil || r.Context == nil {
		return context.Background()
	}
	return r.Context
}

// Resource is one API resource in all its versions. All functions are set
// (Define fills in the ones that a Definition leaves out) and take hub
// objects, with TypeMeta set, that they may change only where said.
type Resource struct {
	Group      string // "" is core
	Plural     string // "pods"
	Singular   string // "pod"
	Kind       string // "Pod"
	ListKind   string // "" is the kind with "List"
	ShortNames []string
	Categories []string
	Namespaced bool
	// IsNamespace says that the objects are the namespaces of others: a path
	// names one as that of what is below it.
	IsNamespace bool
	Verbs       []string  // in discovery's order
	Versions    []Version // preferred first; the hub is the one with Hub set

	Priorities Priorities // of its group in discovery
	// Gate is the feature that must be on for the resource to be served; "" is none.
	Gate string

	// StoragePath is the place below /registry/ ("pods", "services/specs").
	StoragePath string
	// StoredAsJSON keeps objects as JSON although they have a protobuf form, as
	// upstream does where servers were extensions of the API at first.
	StoredAsJSON bool
	// StorageVersion is the version that is written, if the hub is not.
	StorageVersion schema.GroupVersion
	// ToStored turns an object that is to be written, which may be of any
	// version, into the one that the store keeps. It does not change what it
	// is given; nil writes objects as they are.
	ToStored func(obj Object) (Object, error)
	// TTL above zero makes objects expire (events).
	TTL time.Duration

	// Action makes a resource virtual: it is served but not stored, and this is
	// what the API server does for it.
	Action Action

	PrepareForCreate func(r *Request, obj Object) // may change obj
	PrepareForUpdate func(r *Request, obj, old Object)
	// Validate finds everything that is wrong with obj, metadata included;
	// ValidateUpdate everything that an update is refused for.
	Validate       func(r *Request, obj Object) field.ErrorList
	ValidateUpdate func(r *Request, obj, old Object) field.ErrorList
	Warnings       func(r *Request, obj, old Object) []string // old is nil on create
	ValidateName   func(name string, prefix bool) []string

	// ForbidCreate is why objects cannot be created at present, "" if they can.
	ForbidCreate string
	// ForbidDelete is why the object of a name cannot be deleted, "" if it can;
	// nil allows all. Deletions of a collection do not ask.
	ForbidDelete func(name string) string
	// AllowCreateOnUpdate lets a PUT to a missing name create it.
	AllowCreateOnUpdate bool
	// AllowUnconditionalUpdate lets a PUT without resourceVersion win.
	AllowUnconditionalUpdate bool
	// DefaultPropagation is what a DELETE without a policy means.
	DefaultPropagation metav1.DeletionPropagation
	// GracePeriod returns how many seconds a deletion waits by default; nil
	// means that the kind has no graceful deletion.
	GracePeriod func(obj Object, options *metav1.DeleteOptions) int64
	// BeforeDelete decides about a deletion, of which obj is a copy that it may
	// change; not decided, or nil, leaves it to the rules of all kinds.
	BeforeDelete func(obj Object, options *metav1.DeleteOptions, now time.Time) (d Deletion, decided bool)
	// HasFinalizers says that a deleted object waits for more than the
	// finalizers of its metadata; nil is never.
	HasFinalizers func(obj Object) bool
	// ReturnDeletedObject answers a deletion with the object in place of a Status.
	ReturnDeletedObject bool

	// Columns are the columns of a Table; Row renders one object's cells, in
	// the order of Columns.
	Columns []metav1.TableColumnDefinition
	Row     func(obj Object, now time.Time) []any

	// SelectableFields lists the values of field selectors besides
	// metadata.name and metadata.namespace.
	SelectableFields func(obj Object) fields.Set
	// SelectableField is one of these values, where it is to be had without
	// the others; nil else.
	SelectableField func(obj Object, field string) string
	// Fields are the labels that SelectableFields can return; a selector on
	// any other is refused.
	Fields []string
	// Indexed are the field labels that the watch cache keeps an index of.
	Indexed []string

	Subresources []Subresource
}

// Version is one served version of a Resource. Group differs from the
// Resource's only for kinds that moved (events).
type Version struct {
	schema.GroupVersion
	Hub bool
	New func() Object // with TypeMeta set
	// Default fills in what the user left out of an object of this version.
	Default func(obj Object)
	// ToHub and FromHub convert without loss; identity for the hub. Neither
	// changes what it is given.
	ToHub   func(obj Object) Object
	FromHub func(obj Object) Object
	// Deprecated is the warning for its use, "" for none.
	Deprecated string
	// Priorities are those of a group that is not the Resource's.
	Priorities Priorities
	// Unserved versions are only found in the store.
	Unserved bool
	// FieldLabels are the labels of field selectors in this version, with the
	// Resource's Fields that they stand for; nil is the Fields themselves.
	FieldLabels map[string]string

	// The following are for custom resources and else nil.

	// Coerce brings an object that was sent by a client into the form that its
	// schema knows and returns the paths of the fields that it dropped.
	Coerce func(obj Object) (unknown []string, err error)
	// FromStored does the work of Default and ToHub for an object of this
	// version that was read from the store. It may change obj.
	FromStored func(obj Object) (Object, error)
	// Convert makes an object of any version one of this version, where that
	// can fail. It does not change what it is given.
	Convert func(obj Object) (Object, error)
}

// From converts a hub object, or one of any version if the kind is a custom
// resource, to this version.
func (v *Version) From(obj Object) (Object, error) {
	if v.Convert != nil {
		return v.Convert(obj)
	}
	return v.FromHub(obj), nil
}

// Action is what the API server does where no stored object is read or written.
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
	PrepareForUpdate func(r *Request, obj, old Object)
	ValidateUpdate   func(r *Request, obj, old Object) field.ErrorList

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
	if r.SelectableField != nil {
		return r.SelectableField(obj, field)
	}
	return r.SelectableFields(obj).Get(field)
}

// Key is the storage key of an object, as upstream's storage has it.
func (r *Resource) Key(namespace, name string) string {
	if r.Namespaced {
		return "/registry/" + r.StoragePath + "/" + namespace + "/" + name
	}
	return "/registry/" + r.StoragePath + "/" + name
}
