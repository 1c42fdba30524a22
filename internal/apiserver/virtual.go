package apiserver

import (
	"net/http"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
)

// virtualHandlers answer the resources that are not stored.
func virtualHandlers() map[schema.GroupResource]func(*request) error {
	return map[schema.GroupResource]func(*request) error{
		{Resource: "bindings"}:          (*request).bind,
		{Resource: "componentstatuses"}: (*request).componentStatuses,

		{Group: "authentication.k8s.io", Resource: "tokenreviews"}:       (*request).reviewToken,
		{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}: (*request).reviewSelf,

		{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      (*request).reviewAccess,
		{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: (*request).reviewLocalAccess,
		{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  (*request).reviewOwnAccess,
		{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   (*request).reviewOwnRules,
	}
}

// serveVirtual answers a resource that is not stored.
func (q *request) serveVirtual() error {
	if q.info.Verb == "create" && q.info.Name != "" {
		return errNoSuchResource()
	}
	if !q.endpoint.allows(q.info.Verb) || !q.fits() {
		return errMethodNotAllowed()
	}
	handle := q.server.virtual[q.endpoint.resource.GroupResource()]
	if handle == nil {
		return errNoSuchResource()
	}
	return handle(q)
}

// review reads the object of a review, passes it through admission, lets
// answer fill in its status and sends it back.
func review[T resource.Object](q *request, answer func(T) error) error {
	o, err := q.negotiateFor(codec.Accepted{Protobuf: q.endpoint.codec.HasProtobuf(), Convert: true, NoTable: true})
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
	if err := q.placeInNamespace(obj); err != nil {
		return err
	}
	g := q.gate(admission.Create, options, len(options.DryRun) > 0)
	if err := g.mutate(obj, nil, obj.GetName()); err != nil {
		return err
	}
	if err := answer(obj.(T)); err != nil {
		return err
	}
	if err := g.validate(obj, nil, obj.GetName()); err != nil {
		return err
	}
	return q.sendObject(http.StatusCreated, obj, plain(o))
}

// isBlank says that an object has no metadata but what a server may fill in.
func isBlank(meta *metav1.ObjectMeta, namespace string) bool {
	rest := *meta
	rest.ManagedFields = nil
	if rest.Namespace == namespace {
		rest.Namespace = ""
	}
	return equality.Semantic.DeepEqual(&rest, &metav1.ObjectMeta{})
}
