package registry

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/faults"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Create passes a decoded object (a hub object, defaulted) through all that
// happens to a new one, and stores it. It changes obj. A dry run returns an
// entry that is in no cache.
func (q *Request) Create(obj resource.Object, options *metav1.CreateOptions) (*watchcache.Entry, error) {
	wipeObjectMetaSystemFields(obj)
	if err := q.PlaceInNamespace(obj); err != nil {
		return nil, err
	}
	if err := q.Endpoint.mayCreate(obj); err != nil {
		return nil, err
	}
	q.dedupOwnerReferences(obj, duplicateOwners)
	if err := q.manage(nil, obj, options.FieldManager); err != nil {
		return nil, err
	}
	g := q.Gate(admission.Create, options, len(options.DryRun) > 0)
	if err := g.Mutate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	q.dedupOwnerReferences(obj, duplicateOwnersAdmitted)
	return creation{g}.storeNew(q, obj)
}

// mayCreate refuses new objects of a kind that is going away.
func (e *Endpoint) mayCreate(obj resource.Object) error {
	if why := e.Resource.ForbidCreate; why != "" {
		return apierrors.NewForbidden(e.GroupResource(), obj.GetName(), errors.New(why))
	}
	return nil
}

// stored returns what the store keeps of an object.
func (e *Endpoint) stored(obj resource.Object) (resource.Object, error) {
	if convert := e.Resource.ToStored; convert != nil {
		return convert(obj)
	}
	return obj, nil
}

// generatedNames is how many names a create with generateName tries.
const generatedNames = 8

// creation stores a new object that admission has changed.
type creation struct{ gate *Gate }

// storeNew names the object if it has only the beginning of a name, and stores it.
func (c creation) storeNew(q *Request, obj resource.Object) (*watchcache.Entry, error) {
	if obj.GetName() != "" || obj.GetGenerateName() == "" {
		return c.storeNamed(q, obj)
	}
	var e *watchcache.Entry
	var err error
	for range generatedNames {
		named := obj.DeepCopyObject().(resource.Object)
		named.SetName(generateName(obj.GetGenerateName()))
		if e, err = c.storeNamed(q, named); !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return e, err
}

const (
	randomSuffix  = 5
	maxNameLength = 63
)

func generateName(base string) string {
	if len(base) > maxNameLength-randomSuffix {
		base = base[:maxNameLength-randomSuffix]
	}
	return base + utilrand.String(randomSuffix)
}

// kindOf is the kind that refusals name: for custom resources the one that they
// say they are of.
func kindOf(r *resource.Resource, obj resource.Object) schema.GroupKind {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		return custom.GroupVersionKind().GroupKind()
	}
	return r.GroupKind()
}

// errRevisionOnCreate is what upstream's store answers, after everything else
// has been checked: an error without a reason, so a 500.
var errRevisionOnCreate = errors.New("resourceVersion should not be set on objects to be created")

// storeNamed checks a complete new object and stores it. Admission has seen the
// object and may have moved it: into another namespace it must not go.
func (c creation) storeNamed(q *Request, obj resource.Object) (*watchcache.Entry, error) {
	if err := q.PlaceInNamespace(obj); err != nil {
		return nil, err
	}
	r := q.Endpoint.Resource
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(metav1.Time{Time: time.Unix(q.Now.Unix(), 0)})
	rules := q.rules()
	r.PrepareForCreate(rules, obj)
	finish, err := q.Endpoint.begin(q.Context, obj, nil, c.gate.dryRun)
	if err != nil {
		return nil, err
	}
	stored := false
	defer func() { finish(stored) }()

	if errs := resource.ValidateCreate(r, rules, obj); len(errs) > 0 {
		return nil, q.invalid(kindOf(r, obj), obj.GetName(), errs)
	}
	for _, w := range r.Warnings(rules, obj, nil) {
		q.warn(w)
	}
	if err := c.gate.Validate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	if c.gate.dryRun {
		switch _, err := q.Endpoint.Kind.Read(q.Context, obj.GetNamespace(), obj.GetName()); {
		case err == nil:
			return nil, c.alreadyExists(q, obj)
		case !errors.Is(err, store.ErrNotFound):
			return nil, status.FromStore(err, "create", q.Endpoint.GroupResource(), obj.GetName())
		}
		return Unstored(obj), nil
	}
	// What is no revision at all does not count as one.
	if revision, err := status.ParseRevision(obj.GetResourceVersion()); err == nil && revision != 0 {
		return nil, errRevisionOnCreate
	}
	obj.SetResourceVersion("")
	if obj, err = q.Endpoint.stored(obj); err != nil {
		return nil, err
	}
	e, err := q.Endpoint.Kind.Create(q.Context, obj)
	switch {
	case errors.Is(err, store.ErrExists):
		return nil, c.alreadyExists(q, obj)
	case err != nil:
		return nil, status.FromStore(err, "create", q.Endpoint.GroupResource(), obj.GetName())
	}
	stored = true
	return e, nil
}

// alreadyExists says that the name is taken, and whether it is about to be
// free. It asks the store: the cache may not have heard yet.
func (c creation) alreadyExists(q *Request, obj resource.Object) error {
	err := apierrors.NewAlreadyExists(q.Endpoint.GroupResource(), obj.GetName())
	if obj.GetGenerateName() != "" {
		err = apierrors.NewGenerateNameConflict(q.Endpoint.GroupResource(), obj.GetName(), 1)
	}
	e, readErr := q.Endpoint.Kind.Read(q.Context, obj.GetNamespace(), obj.GetName())
	if readErr == nil && e.Object.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// Unstored is an object as an entry that is in no cache.
func Unstored(obj resource.Object) *watchcache.Entry {
	return &watchcache.Entry{Object: obj, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// invalid says what is wrong with an object. Of a request whose time is over
// it says that: rules end with it.
func (q *Request) invalid(kind schema.GroupKind, name string, errs field.ErrorList) error {
	if err := q.Context.Err(); err != nil {
		return err
	}
	return faults.Invalid(kind, name, errs)
}

// rules is what a resource's rules may know of the request.
func (q *Request) rules() *resource.Request {
	r := &resource.Request{
		Context: q.Context, Now: q.Now, User: q.User, Namespace: q.Info.Namespace, GroupVersion: q.Endpoint.Version.GroupVersion,
		Features: q.Registry.Features,
	}
	if q.User != nil {
		r.NamespaceLabels, r.Authorized = q.namespaceLabels, q.authorized
	}
	return r
}

// authorized says whether the user may do a verb with a name that the object
// of the request names.
func (q *Request) authorized(verb, group, resource, name string) bool {
	return q.Authorize(&authorizer.AttributesRecord{
		User: q.User, Verb: verb, APIGroup: group, APIVersion: "*", Resource: resource, Name: name, ResourceRequest: true,
	}) == nil
}

// namespaceLabels are the labels of the namespace that the request is about.
func (q *Request) namespaceLabels() map[string]string {
	namespaces := objects.Of[*corev1.Namespace](objects.Cache{Cache: q.Registry.Cache}, objects.Namespaces)
	namespace, ok := namespaces.Get("", q.Info.Namespace)
	if !ok {
		return nil
	}
	return namespace.Labels
}

func wipeObjectMetaSystemFields(obj resource.Object) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}
