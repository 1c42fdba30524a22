package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// operation is a request upon an endpoint: it reads what a verb needs from
// HTTP, has the registry carry it out, and answers.
type operation struct{ *request }

// serveVerb calls the verb.
func (q operation) serveVerb() error {
	verb := q.Info.Verb
	if !q.Endpoint.Allows(verb) || !q.fits() {
		return status.MethodNotAllowed()
	}
	switch verb {
	case "get":
		return q.get()
	case "list":
		return q.list()
	case "watch":
		return q.watch()
	case "create":
		return q.create()
	case "update":
		return q.update()
	case "patch":
		return q.patch()
	case "delete":
		return q.delete()
	case "deletecollection":
		return q.deleteCollection()
	}
	return status.MethodNotAllowed()
}

// fits says whether the path is one for the verb: of an object, a collection
// or a collection in a namespace. HEAD is for custom resources alone.
func (q operation) fits() bool {
	if q.http.Method == http.MethodHead && !q.Endpoint.IsCustom() {
		return false
	}
	switch q.Info.Verb {
	case "create":
		return q.Info.Name == ""
	case "update", "patch":
		return q.Info.Name != ""
	case "deletecollection":
		return !q.Endpoint.Resource.Namespaced || q.Info.Namespace != ""
	}
	return true
}

// get answers with one object, or with its Scale.
func (q operation) get() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	if q.query() != nil && len(q.parsed["export"]) > 0 && isTrue(q.parsed["export"][0]) {
		return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	e, err := q.Get(q.query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if q.Subresource != nil && q.Subresource.Scale != nil {
		return out.scale(e)
	}
	return out.entry(http.StatusOK, e)
}

// list answers with the objects that the selectors match.
func (q operation) list() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	options, err := listOptions(q.query(), false, q.Endpoint, q.Info.Name)
	if err != nil {
		return err
	}
	page, err := q.List(options)
	if err != nil {
		return err
	}
	return out.page(page)
}

// create stores a new object.
func (q operation) create() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	obj, options, err := q.newObject()
	if err != nil {
		return err
	}
	e, err := q.Create(obj, options)
	if err != nil {
		return err
	}
	return out.entry(http.StatusCreated, e)
}

// update replaces an object, or one part of it if the request names a subresource.
func (q operation) update() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	body, options, err := received(q, updateOptions)
	if err != nil {
		return err
	}
	e, created, err := q.Update(options, func() (resource.Object, error) { return q.decode(body, options.FieldValidation) })
	if err != nil {
		return err
	}
	return out.entry(createdOrOK(created), e)
}

func createdOrOK(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// patch changes an object by one of the four kinds of patches.
func (q operation) patch() error {
	p, out, err := q.readPatch()
	if err != nil {
		return err
	}
	e, created, err := q.Patch(p)
	if err != nil {
		return err
	}
	return out.entry(createdOrOK(created), e)
}

// updateScale changes the replicas of an object by PUT or PATCH of its Scale.
func (q operation) updateScale() error {
	if q.Info.Verb == "patch" {
		p, out, err := q.readPatch()
		if err != nil {
			return err
		}
		e, err := q.PatchScale(p)
		if err != nil {
			return err
		}
		return out.scale(e)
	}
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	body, options, err := received(q, updateOptions)
	if err != nil {
		return err
	}
	scale := &autoscalingv1.Scale{}
	if err := q.DecodeInto(scale, q.Subresource.Kind, body, options.FieldValidation); err != nil {
		return err
	}
	q.recordBody(scale, q.Subresource.Kind)
	e, err := q.UpdateScale(scale, options)
	if err != nil {
		return err
	}
	return out.scale(e)
}

// delete deletes an object, or marks it as being deleted.
func (q operation) delete() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	options, err := q.readDeleteOptions()
	if err != nil {
		return err
	}
	e, gone, err := q.Delete(options)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if !gone && options.OrphanDependents != nil && !*options.OrphanDependents { //nolint:staticcheck // older clients use it
		code = http.StatusAccepted
	}
	if gone && !q.Endpoint.Resource.ReturnDeletedObject {
		return out.plain().object(code, deletedStatus(q.Endpoint.GroupResource(), e))
	}
	return out.entry(code, e)
}

func deletedStatus(gr schema.GroupResource, e *watchcache.Entry) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: e.Name, Group: gr.Group, Kind: gr.Resource, UID: e.Object.GetUID()},
	}
}

// deleteCollection deletes everything that the selectors match, and answers
// with the list of it as it was.
func (q operation) deleteCollection() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	listed, err := listOptions(q.query(), false, q.Endpoint, q.Info.Name)
	if err != nil {
		return err
	}
	options, err := q.readDeleteOptions()
	if err != nil {
		return err
	}
	page, err := q.List(listed)
	if err != nil {
		return err
	}
	if err := q.DeleteCollection(page.Entries, options); err != nil {
		return err
	}
	return out.page(page)
}

// received reads the body and then the options of a verb.
func received[O any](q operation, parse func(url.Values) (O, error)) (body registry.Body, options O, err error) {
	if body, err = q.readBody(); err != nil {
		return body, options, err
	}
	options, err = parse(q.query())
	return body, options, err
}

// newObject reads the object that is to be created, and how.
func (q operation) newObject() (resource.Object, *metav1.CreateOptions, error) {
	body, options, err := received(q, createOptions)
	if err != nil {
		return nil, nil, err
	}
	obj, err := q.decode(body, options.FieldValidation)
	return obj, options, err
}

// readBody reads a body of the kind that the endpoint expects.
func (q operation) readBody() (registry.Body, error) {
	protobuf := q.Endpoint.Codec.HasProtobuf()
	media, ok := codec.InputMedia(q.http.Header.Get("Content-Type"), protobuf, q.server.CBOR)
	if !ok {
		accepted := codec.NotAcceptable(false, q.server.CBOR)
		if !protobuf {
			accepted = slices.Delete(accepted, int(codec.Protobuf), int(codec.Protobuf)+1)
		}
		return registry.Body{}, status.UnsupportedMediaType(accepted)
	}
	data, err := q.wholeBody()
	return registry.Body{Data: data, Media: media}, err
}

// decode reads a body as the hub object, defaulted. Unknown and duplicate
// fields are refused, warned of or ignored, as validation says.
func (q operation) decode(body registry.Body, validation string) (resource.Object, error) {
	v := q.Endpoint.Version
	obj := v.New()
	if err := q.DecodeInto(obj, q.Endpoint.GVK(), body, validation); err != nil {
		return nil, err
	}
	v.Default(obj)
	q.recordBody(obj, q.Endpoint.GVK())
	return v.ToHub(obj), nil
}

// readPatch reads everything about a patch but the object.
func (q operation) readPatch() (*registry.Patch, output, error) {
	contentType, _, _ := strings.Cut(q.http.Header.Get("Content-Type"), ";")
	if accepted := q.Endpoint.PatchTypes(q.server.CBOR); !slices.Contains(accepted, contentType) {
		return nil, output{}, status.UnsupportedMediaType(accepted)
	}
	out, err := q.negotiate()
	if err != nil {
		return nil, out, err
	}
	kind := types.PatchType(contentType)
	body, err := q.wholeBody()
	if err != nil {
		return nil, out, err
	}
	if q.audit != nil {
		q.audit.Patch(func() ([]byte, error) { return registry.PatchAsJSON(kind, body) })
	}
	options, err := patchOptions(q.query(), kind)
	if err != nil {
		return nil, out, err
	}
	p, err := registry.ParsePatch(kind, body, options)
	return p, out, err
}

// readDeleteOptions reads the options from the body, or else the query.
func (q operation) readDeleteOptions() (*metav1.DeleteOptions, error) {
	body, err := q.wholeBody()
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) > 0 {
		media, ok := codec.InputMedia(q.http.Header.Get("Content-Type"), true, q.server.CBOR)
		if !ok {
			return nil, status.UnsupportedMediaType(codec.NotAcceptable(false, q.server.CBOR))
		}
		if err := codec.DecodeDeleteOptions(options, body, media); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		q.recordBody(options, sentKind(options))
	} else if options, err = deleteOptions(q.query()); err != nil {
		return nil, err
	}
	if ignore := options.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore {
		return nil, status.InvalidOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not supported, try again after removing the option")})
	}
	options.Kind, options.APIVersion = "DeleteOptions", "meta.k8s.io/v1"
	return options, status.InvalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(options))
}

// sentKind is the kind that a client gives its options.
func sentKind(options *metav1.DeleteOptions) schema.GroupVersionKind {
	kind := options.GroupVersionKind()
	if kind.Empty() {
		return metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	}
	return kind
}
