package apiserver

import (
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/faults"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// create stores a new object.
func (q *request) create() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	in, err := q.input()
	if err != nil {
		return err
	}
	options, err := createOptions(q.query())
	if err != nil {
		return err
	}
	obj, err := q.decode(in, options.FieldValidation)
	if err != nil {
		return err
	}
	e, err := q.createObject(obj, options)
	if err != nil {
		return err
	}
	return q.sendEntry(http.StatusCreated, e, o)
}

// createObject passes a decoded object through all that happens to a new one.
func (q *request) createObject(obj resource.Object, options *metav1.CreateOptions) (*watchcache.Entry, error) {
	wipeSystemMetadata(obj)
	if err := q.placeInNamespace(obj); err != nil {
		return nil, err
	}
	if err := q.mayCreate(obj); err != nil {
		return nil, err
	}
	q.dropDuplicateOwners(obj, duplicateOwners)
	if err := q.manage(nil, obj, options.FieldManager); err != nil {
		return nil, err
	}
	g := q.gate(admission.Create, options, len(options.DryRun) > 0)
	if err := g.mutate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	q.dropDuplicateOwners(obj, duplicateOwnersAdmitted)
	return q.storeNew(g, obj)
}

// mayCreate refuses new objects of a kind that is going away.
func (q *request) mayCreate(obj resource.Object) error {
	if why := q.endpoint.resource.ForbidCreate; why != "" {
		return apierrors.NewForbidden(q.endpoint.groupResource(), obj.GetName(), errors.New(why))
	}
	return nil
}

// stored returns what the store keeps of an object.
func (q *request) stored(obj resource.Object) (resource.Object, error) {
	if convert := q.endpoint.resource.ToStored; convert != nil {
		return convert(obj)
	}
	return obj, nil
}

// generatedNames is how many names a create with generateName tries.
const generatedNames = 8

// storeNew names the object if it has only the beginning of a name, and stores it.
func (q *request) storeNew(g *gate, obj resource.Object) (*watchcache.Entry, error) {
	if obj.GetName() != "" || obj.GetGenerateName() == "" {
		return q.storeNamed(g, obj)
	}
	var e *watchcache.Entry
	var err error
	for range generatedNames {
		named := obj.DeepCopyObject().(resource.Object)
		named.SetName(generateName(obj.GetGenerateName()))
		if e, err = q.storeNamed(g, named); !apierrors.IsAlreadyExists(err) {
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
func (q *request) storeNamed(g *gate, obj resource.Object) (*watchcache.Entry, error) {
	if err := q.placeInNamespace(obj); err != nil {
		return nil, err
	}
	r := q.endpoint.resource
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(metav1.Time{Time: time.Unix(q.now.Unix(), 0)})
	finish, err := q.beginCreate(obj, g.dryRun)
	if err != nil {
		return nil, err
	}
	stored := false
	defer func() { finish(stored) }()

	rules := q.rules()
	if errs := resource.BeforeCreate(r, rules, obj); len(errs) > 0 {
		return nil, faults.Invalid(kindOf(r, obj), obj.GetName(), errs)
	}
	for _, w := range r.Warnings(rules, obj, nil) {
		q.warnings.AddWarning("", w)
	}
	if err := g.validate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	if g.dryRun {
		switch _, err := q.endpoint.kind.Read(q.ctx, obj.GetNamespace(), obj.GetName()); {
		case err == nil:
			return nil, q.alreadyExists(obj)
		case !errors.Is(err, store.ErrNotFound):
			return nil, storeError(err, "create", q.endpoint.groupResource(), obj.GetName())
		}
		return unstored(obj), nil
	}
	// What is no revision at all does not count as one.
	if revision, err := parseRevision(obj.GetResourceVersion()); err == nil && revision != 0 {
		return nil, errRevisionOnCreate
	}
	obj.SetResourceVersion("")
	if obj, err = q.stored(obj); err != nil {
		return nil, err
	}
	e, err := q.endpoint.kind.Create(q.ctx, obj)
	switch {
	case errors.Is(err, store.ErrExists):
		return nil, q.alreadyExists(obj)
	case err != nil:
		return nil, storeError(err, "create", q.endpoint.groupResource(), obj.GetName())
	}
	stored = true
	return e, nil
}

// alreadyExists says that the name is taken, and whether it is about to be
// free. It asks the store: the cache may not have heard yet.
func (q *request) alreadyExists(obj resource.Object) error {
	err := apierrors.NewAlreadyExists(q.endpoint.groupResource(), obj.GetName())
	if obj.GetGenerateName() != "" {
		err = apierrors.NewGenerateNameConflict(q.endpoint.groupResource(), obj.GetName(), 1)
	}
	e, readErr := q.endpoint.kind.Read(q.ctx, obj.GetNamespace(), obj.GetName())
	if readErr == nil && e.Object.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// unstored is an object as an entry that is in no cache.
func unstored(obj resource.Object) *watchcache.Entry {
	return &watchcache.Entry{Object: obj, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// rules is what a resource's rules may know of the request.
func (q *request) rules() *resource.Request {
	return &resource.Request{
		Now: q.now, User: q.user, Namespace: q.info.Namespace, GroupVersion: q.endpoint.version.GroupVersion,
		Features: q.server.Features, NamespaceLabels: q.namespaceLabels, Authorized: q.authorized,
	}
}

// authorized says whether the user may do a verb with a name that the object
// of the request names.
func (q *request) authorized(verb, group, resource, name string) bool {
	return q.allowed(&authorizer.AttributesRecord{
		User: q.user, Verb: verb, APIGroup: group, APIVersion: "*", Resource: resource, Name: name, ResourceRequest: true,
	}) == nil
}

// namespaceLabels are the labels of the namespace that the request is about.
func (q *request) namespaceLabels() map[string]string {
	namespaces := objects.Of[*corev1.Namespace](objects.Cache{Cache: q.server.Cache}, objects.Namespaces)
	namespace, ok := namespaces.Get("", q.info.Namespace)
	if !ok {
		return nil
	}
	return namespace.Labels
}

func wipeSystemMetadata(obj resource.Object) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}
