package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// operation is a verb on stored objects, or on a part of them, which means the same
// for all resources. It reads the verb's input from HTTP, calls the registry and
// answers. A subresource or virtual resource that does something else has an
// action.
type operation struct {
	q    *request
	call *registry.Request
	in   input
}

func newOperation(q *request) operation { return operation{q, &q.call, input{q}} }

// serveVerb calls the verb, which the endpoint has.
func (o operation) serveVerb() error {
	switch o.call.Info.Verb {
	case "get":
		return o.serveGet()
	case "list":
		return o.serveList()
	case "watch":
		return o.serveWatch()
	case "create":
		return o.serveCreate()
	case "update":
		return o.serveUpdate()
	case "patch":
		return o.servePatch()
	case "delete":
		return o.serveDelete()
	case "deletecollection":
		return o.serveDeleteCollection()
	}
	return status.MethodNotAllowed()
}

// serveSubresource calls the verb on a part of an object.
func (o operation) serveSubresource() error {
	scales := o.call.Subresource.Scale != nil
	switch o.call.Info.Verb {
	case "get":
		return o.serveGet()
	case "update":
		if scales {
			return o.updateScale()
		}
		return o.serveUpdate()
	case "patch":
		if scales {
			return o.patchScale()
		}
		return o.servePatch()
	}
	return status.MethodNotAllowed()
}

// serveGet answers with one object, or with its Scale.
func (o operation) serveGet() error {
	out, err := negotiate(o.q)
	if err != nil {
		return err
	}
	if o.q.query() != nil && len(o.q.parsed["export"]) > 0 && isTrue(o.q.parsed["export"][0]) {
		return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	e, err := o.call.Get(o.q.query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if o.call.Subresource != nil && o.call.Subresource.Scale != nil {
		return out.scale(e)
	}
	return out.entry(http.StatusOK, e)
}

// serveList answers with the objects that match the selectors.
func (o operation) serveList() error {
	out, err := negotiate(o.q)
	if err != nil {
		return err
	}
	options, err := listOptions(o.q.query(), false, o.call)
	if err != nil {
		return err
	}
	page, err := o.call.List(options)
	if err != nil {
		return err
	}
	return out.page(page)
}

// serveCreate stores a new object.
func (o operation) serveCreate() error {
	out, err := negotiate(o.q)
	if err != nil {
		return err
	}
	obj, options, err := o.in.newObject()
	if err != nil {
		return err
	}
	e, err := o.call.Create(obj, options)
	if err != nil {
		return err
	}
	return out.entry(http.StatusCreated, e)
}

// serveUpdate replaces an object or a subresource.
func (o operation) serveUpdate() error {
	body, options, out, err := o.readUpdate()
	if err != nil {
		return err
	}
	e, created, err := o.call.Update(options, func() (resource.Object, error) { return o.in.object(body, options.FieldValidation) })
	if err != nil {
		return err
	}
	return out.entry(createdOrOK(created), e)
}

// readUpdate reads the new object, undecoded, and negotiates the answer before it
// reads the body.
func (o operation) readUpdate() (registry.Body, *metav1.UpdateOptions, output, error) {
	out, err := negotiate(o.q)
	if err != nil {
		return registry.Body{}, nil, out, err
	}
	body, options, err := received(o.in, updateOptions)
	return body, options, out, err
}

func createdOrOK(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// servePatch changes an object by a patch of any type.
func (o operation) servePatch() error {
	p, out, err := o.readPatch()
	if err != nil {
		return err
	}
	e, created, err := o.call.Patch(p)
	if err != nil {
		return err
	}
	return out.entry(createdOrOK(created), e)
}

// readPatch reads the patch, and negotiates the answer before it reads the body.
func (o operation) readPatch() (*registry.Patch, output, error) {
	kind, err := o.in.patchType()
	if err != nil {
		return nil, output{}, err
	}
	out, err := negotiate(o.q)
	if err != nil {
		return nil, out, err
	}
	p, err := o.in.patch(kind)
	return p, out, err
}

// serveDelete deletes an object, or marks it as being deleted.
func (o operation) serveDelete() error {
	out, err := negotiate(o.q)
	if err != nil {
		return err
	}
	options, err := o.in.deleteOptions()
	if err != nil {
		return err
	}
	if ignoresReadErrors(options) {
		return o.deleteUndecodable(out, options)
	}
	e, gone, err := o.call.Delete(options)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if !gone && options.OrphanDependents != nil && !*options.OrphanDependents { //nolint:staticcheck // older clients use it
		code = http.StatusAccepted
	}
	if gone && !o.call.Endpoint.Resource.DeleteStrategy.ReturnDeletedObject {
		return out.plain().object(code, deletedStatus(o.call.Endpoint.GroupResource(), e))
	}
	return out.entry(code, e)
}

// deleteUndecodable deletes an object whose stored value is broken.
func (o operation) deleteUndecodable(out output, options *metav1.DeleteOptions) error {
	audit.AddAuditAnnotation(o.call.Context, "apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	if err := o.call.DeleteUndecodable(options); err != nil {
		return err
	}
	return out.plain().object(http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Code:     http.StatusOK,
		Details:  &metav1.StatusDetails{Name: o.call.Info.Name, Kind: o.call.Endpoint.Resource.Kind},
	})
}

func deletedStatus(gr schema.GroupResource, e *watchcache.Entry) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: e.Name, Group: gr.Group, Kind: gr.Resource, UID: e.Object.GetUID()},
	}
}

// serveDeleteCollection deletes the objects that match the selectors. It answers with
// the list of them as they were before.
func (o operation) serveDeleteCollection() error {
	out, err := negotiate(o.q)
	if err != nil {
		return err
	}
	listed, err := listOptions(o.q.query(), false, o.call)
	if err != nil {
		return err
	}
	options, err := o.in.deleteOptions()
	if err != nil {
		return err
	}
	if ignoresReadErrors(options) {
		return status.InvalidOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option")})
	}
	page, err := o.call.List(listed)
	if err != nil {
		return err
	}
	if err := o.call.DeleteCollection(page.Entries, options); err != nil {
		return err
	}
	return out.page(page)
}
