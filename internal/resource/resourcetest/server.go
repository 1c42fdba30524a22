package resourcetest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/resource"
)

// Admission takes the place of the parts of the server that change objects
// between decoding and validation. old is nil on create.
type Admission func(r *resource.RequestContext, obj, old resource.Object) error

const (
	testNamespace = "diffapi"
	testUID       = "5f2c39e8-8a34-4f0f-b4b0-5b5f7c1d9a10"
)

// server answers requests for one served version of one resource, without
// storage.
type server struct {
	resource *resource.Resource
	version  *resource.Version
	kind     schema.GroupVersionKind
	decoder  *json.Serializer
	admit    Admission
	request  *resource.RequestContext
}

// outcome is the answer to a request, in the form of Answer.
type outcome struct {
	code   int
	status metav1.Status
	object resource.Object // in the served version; nil when refused
}

func newServer(r *resource.Resource, v *resource.Version, admit Admission) *server {
	s := &server{resource: r, version: v, kind: v.WithKind(r.Kind), admit: admit}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(s.kind, v.New())
	s.decoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true})
	s.request = &resource.RequestContext{
		Now:          time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC),
		GroupVersion: v.GroupVersion,
		User:         &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}},
		Authorized:   func(string, string, string, string) bool { return true },
	}
	if r.Namespaced {
		s.request.Namespace = testNamespace
	}
	return s
}

// decode returns the hub object in a body, with defaults.
func (s *server) decode(body []byte) (resource.Object, error) {
	decoded, _, err := s.decoder.Decode(body, &s.kind, nil)
	if err == nil && s.version.Undecodable != nil {
		err = s.version.Undecodable(decoded.(resource.Object))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
			s.kind.Kind, s.kind.Version, s.kind.Kind, err))
	}
	obj := decoded.(resource.Object)
	s.version.Default(obj)
	obj = s.version.ToHub(obj)
	switch namespace := obj.GetNamespace(); {
	case !s.resource.Namespaced || namespace == "":
		obj.SetNamespace(s.request.Namespace)
	case namespace != s.request.Namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return obj, nil
}

func (s *server) post(body []byte) outcome {
	obj, err := s.decode(body)
	if err != nil {
		return refused(err)
	}
	return s.create(obj)
}

func (s *server) create(obj resource.Object) outcome {
	obj.SetUID(testUID)
	obj.SetCreationTimestamp(metav1.NewTime(s.request.Now))
	obj.SetResourceVersion("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(generatedBase(obj.GetGenerateName()) + generatedSuffix)
	}
	if err := s.admitted(obj, nil); err != nil {
		return refused(err)
	}
	if errs := BeforeCreate(s.resource, s.request, obj); len(errs) > 0 {
		return s.invalid(obj, errs)
	}
	return outcome{code: http.StatusCreated, object: s.version.FromHub(obj)}
}

// put answers a PUT. old is the only stored object.
func (s *server) put(body []byte, old resource.Object) outcome {
	obj, err := s.decode(body)
	if err != nil {
		return refused(err)
	}
	if obj.GetName() != old.GetName() {
		if s.resource.Strategy.AllowCreateOnUpdate {
			return s.create(obj)
		}
		return refused(apierrors.NewNotFound(s.resource.GroupResource(), obj.GetName()))
	}
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetResourceVersion(old.GetResourceVersion())
	if err := s.admitted(obj, old); err != nil {
		return refused(err)
	}
	if errs := BeforeUpdate(s.resource, s.request, obj, old); len(errs) > 0 {
		return s.invalid(obj, errs)
	}
	return outcome{code: http.StatusOK, object: s.version.FromHub(obj)}
}

// generatedSuffix is appended to a generateName in place of random characters.
const generatedSuffix = "x7k2p"

func generatedBase(name string) string {
	const longest = 58
	return name[:min(len(name), longest)]
}

func (s *server) admitted(obj, old resource.Object) error {
	if s.admit == nil {
		return nil
	}
	return s.admit(s.request, obj, old)
}

func (s *server) invalid(obj resource.Object, errs field.ErrorList) outcome {
	return refused(apierrors.NewInvalid(s.resource.GroupKind(), obj.GetName(), errs))
}

func refused(err error) outcome {
	status := apierrors.NewInternalError(err).Status()
	if api := apierrors.APIStatus(nil); errors.As(err, &api) {
		status = api.Status()
	}
	return outcome{code: int(status.Code), status: status}
}
