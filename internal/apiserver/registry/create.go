package registry

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Create runs obj, a decoded and defaulted hub object, through the creation
// of a new object, and stores it. It changes obj. A dry run returns an entry
// that is in no cache.
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
	g := q.Admitter(admission.Create, options, len(options.DryRun) > 0)
	if err := g.Mutate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	q.dedupOwnerReferences(obj, duplicateOwnersAdmitted)
	return creation{g}.storeNew(obj)
}

// mayCreate refuses new objects of kinds that can no longer be created.
func (e *Endpoint) mayCreate(obj resource.Object) error {
	if why := e.Resource.Strategy.ForbidCreate; why != "" {
		return apierrors.NewForbidden(e.GroupResource(), obj.GetName(), errors.New(why))
	}
	return nil
}

// stored returns the form in which the store keeps an object.
func (e *Endpoint) stored(obj resource.Object) (resource.Object, error) {
	if convert := e.Resource.Storage.ToStored; convert != nil {
		return convert(obj)
	}
	return obj, nil
}

// generatedNames is the number of names that a create with generateName
// tries.
const generatedNames = 8

// creation stores a new object after mutating admission.
type creation struct{ gate *Admitter }

// storeNew stores the object. It generates a name if the object has only a
// generateName.
func (c creation) storeNew(obj resource.Object) (*watchcache.Entry, error) {
	if obj.GetName() != "" || obj.GetGenerateName() == "" {
		return c.storeNamed(obj)
	}
	var e *watchcache.Entry
	var err error
	for range generatedNames {
		named := obj.DeepCopyObject().(resource.Object)
		named.SetName(generateName(obj.GetGenerateName()))
		if e, err = c.storeNamed(named); !apierrors.IsAlreadyExists(err) {
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

// kindOf returns the kind that errors name. For custom resources it is the
// kind in the object.
func kindOf(r *resource.Resource, obj resource.Object) schema.GroupKind {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		return custom.GroupVersionKind().GroupKind()
	}
	return r.GroupKind()
}

// errRevisionOnCreate is returned after all other checks, as by upstream's
// store. It has no reason, so it becomes a 500.
var errRevisionOnCreate = errors.New("resourceVersion should not be set on objects to be created")

// storeNamed validates a new object with a name and stores it. Admission may
// have changed the object's namespace, which is refused.
func (c creation) storeNamed(obj resource.Object) (*watchcache.Entry, error) {
	q := c.gate.q
	if err := q.PlaceInNamespace(obj); err != nil {
		return nil, err
	}
	r := q.Endpoint.Resource
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(metav1.Time{Time: time.Unix(q.Now.Unix(), 0)})
	rules := q.rules()
	r.Strategy.PrepareForCreate(rules, obj)
	finish, err := q.Endpoint.begin(q.Context, obj, nil, c.gate.dryRun)
	if err != nil {
		return nil, err
	}
	stored := false
	defer func() { finish(stored) }()

	if errs := resource.ValidateCreate(r, rules, obj); len(errs) > 0 {
		return nil, invalid(q.Context, kindOf(r, obj), obj.GetName(), errs)
	}
	for _, w := range r.Strategy.Warnings(rules, obj, nil) {
		q.warn(w)
	}
	if err := c.gate.Validate(obj, nil, obj.GetName()); err != nil {
		return nil, err
	}
	if c.gate.dryRun {
		switch _, err := q.Endpoint.Kind.Read(q.Context, obj.GetNamespace(), obj.GetName()); {
		case err == nil:
			return nil, c.alreadyExists(obj)
		case !errors.Is(err, store.ErrNotFound):
			return nil, status.FromStore(err, "create", q.Endpoint.GroupResource(), obj.GetName())
		}
		if obj, err = q.Endpoint.stored(obj); err != nil {
			return nil, err
		}
		return Unstored(obj), nil
	}
	// A resourceVersion that is not a number is ignored.
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
		return nil, c.alreadyExists(obj)
	case err != nil:
		err = status.FromStore(err, "create", q.Endpoint.GroupResource(), obj.GetName())
		if mayBeStored(err) {
			finish = nothing
		}
		return nil, err
	}
	stored = true
	return e, nil
}

// alreadyExists returns the error for a name that is taken. It mentions
// whether the existing object is being deleted, for which it reads the store,
// because the cache may be behind.
func (c creation) alreadyExists(obj resource.Object) error {
	q := c.gate.q
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

// Unstored returns an entry with an object that is in no cache.
func Unstored(obj resource.Object) *watchcache.Entry {
	return &watchcache.Entry{Object: obj, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// invalid returns the error for an invalid object. If the request has ended,
// that is the reason for errs, and invalid returns the error of its context.
func invalid(ctx context.Context, kind schema.GroupKind, name string, errs field.ErrorList) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return errorlist.Invalid(kind, name, errs)
}

func wipeObjectMetaSystemFields(obj resource.Object) {
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}
