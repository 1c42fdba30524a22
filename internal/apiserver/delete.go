package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// delete deletes an object, or marks it as being deleted.
func (q *request) delete() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	options, err := q.readDeleteOptions()
	if err != nil {
		return err
	}
	if forbid := q.endpoint.resource.ForbidDelete; forbid != nil {
		if why := forbid(q.info.Name); why != "" {
			return apierrors.NewForbidden(q.endpoint.groupResource(), q.info.Name, errors.New(why))
		}
	}
	e, gone, err := q.deleteObject(q.gate(admission.Delete, options, len(options.DryRun) > 0), q.info.Name, options)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if !gone && options.OrphanDependents != nil && !*options.OrphanDependents { //nolint:staticcheck // older clients use it
		code = http.StatusAccepted
	}
	if gone && !returnsDeleted[q.endpoint.resource.GroupResource()] {
		return q.sendObject(code, deletedStatus(q.endpoint.groupResource(), e), plain(o))
	}
	return q.sendEntry(code, e, o)
}

// plain is the output for a Status, which is never converted.
func plain(o codec.Output) codec.Output {
	o.Convert = schema.GroupVersionKind{}
	return o
}

// returnsDeleted lists the resources whose deletion is answered with the
// object; others are answered with a Status.
var returnsDeleted = map[schema.GroupResource]bool{
	{Resource: "pods"}:                   true,
	{Resource: "podtemplates"}:           true,
	{Resource: "services"}:               true,
	{Resource: "serviceaccounts"}:        true,
	{Resource: "persistentvolumes"}:      true,
	{Resource: "persistentvolumeclaims"}: true,
	{Resource: "resourcequotas"}:         true,
}

func deletedStatus(gr schema.GroupResource, e *watchcache.Entry) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: e.Name, Group: gr.Group, Kind: gr.Resource, UID: e.Object.GetUID()},
	}
}

// readDeleteOptions reads the options from the body, or else the query.
func (q *request) readDeleteOptions() (*metav1.DeleteOptions, error) {
	body, err := q.readBody()
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) > 0 {
		media, ok := codec.InputMedia(q.http.Header.Get("Content-Type"), true, q.server.CBOR)
		if !ok {
			return nil, errUnsupportedMediaType(codec.NotAcceptable(false, q.server.CBOR))
		}
		if err := codec.DecodeDeleteOptions(options, body, media); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		q.recordBody(options, sentKind(options))
	} else if options, err = deleteOptions(q.query()); err != nil {
		return nil, err
	}
	if ignore := options.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore {
		return nil, invalidOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not supported, try again after removing the option")})
	}
	options.Kind, options.APIVersion = "DeleteOptions", "meta.k8s.io/v1"
	return options, invalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(options))
}

// sentKind is the kind that a client gives its options.
func sentKind(options *metav1.DeleteOptions) schema.GroupVersionKind {
	kind := options.GroupVersionKind()
	if kind.Empty() {
		return metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	}
	return kind
}

// deleteObject carries out a deletion. gone says that the object is no more;
// otherwise e is the object that waits for finalizers or its grace period.
func (q *request) deleteObject(g *gate, name string, options *metav1.DeleteOptions) (e *watchcache.Entry, gone bool, err error) {
	kind, gr := q.endpoint.kind, q.endpoint.groupResource()
	current, ok := kind.Get(q.namespace(), name)
	for fresh := false; ; fresh = true {
		if !ok {
			err = apierrors.NewNotFound(gr, name)
		} else if e, gone, err = q.tryDelete(g, current, options); err == nil {
			return e, gone, nil
		}
		if outcomeUnknown(err) || fresh && !errors.Is(err, errRetry) {
			return nil, false, err
		}
		if ctxErr := q.ctx.Err(); ctxErr != nil {
			return nil, false, ctxErr
		}
		latest, readErr := kind.Read(q.ctx, q.namespace(), name)
		if readErr != nil {
			return nil, false, storeError(readErr, "delete", gr, name)
		}
		if ok && latest.Revision == current.Revision && !errors.Is(err, errRetry) {
			return nil, false, err
		}
		current, ok = latest, true
	}
}

// tryDelete deletes one state of the object.
func (q *request) tryDelete(g *gate, current *watchcache.Entry, options *metav1.DeleteOptions) (*watchcache.Entry, bool, error) {
	if err := checkPreconditions(q.endpoint, current.Object, options); err != nil {
		return nil, false, err
	}
	if err := g.admitDeletion(current.Object, current.Name); err != nil {
		return nil, false, err
	}
	decision := decideDeletion(q.endpoint.resource, current.Object, options, q.now)
	switch {
	case decision.action == leave:
		return current, false, nil
	case g.dryRun && decision.obj != nil:
		return unstored(decision.obj), decision.action == deleteNow, nil
	case g.dryRun:
		return current, true, nil
	case decision.action == mark:
		e, err := q.endpoint.kind.Update(q.ctx, decision.obj, current)
		return e, false, q.writeError(err, "delete")
	}
	last, err := q.endpoint.kind.Delete(q.ctx, current, decision.obj)
	if err != nil {
		if errors.Is(err, store.ErrConflict) {
			return nil, false, errRetry
		}
		return nil, false, storeError(err, "delete", q.endpoint.groupResource(), current.Name)
	}
	q.afterDelete(current.Object)
	return last, true, nil
}

func checkPreconditions(e *endpoint, obj resource.Object, options *metav1.DeleteOptions) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	gr := schema.GroupResource{Group: e.version.Group, Resource: e.resource.Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// deleteCollection deletes everything that the selectors match, and answers
// with the list of it as it was.
func (q *request) deleteCollection() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	listed, err := listOptions(q.query(), false, q.endpoint, q.info.Name)
	if err != nil {
		return err
	}
	options, err := q.readDeleteOptions()
	if err != nil {
		return err
	}
	p, err := q.page(listed)
	if err != nil {
		return err
	}
	if err := q.deleteAll(p, options); err != nil {
		return err
	}
	return q.sendPage(p, o)
}

func (q *request) deleteAll(p *page, options *metav1.DeleteOptions) error {
	for _, e := range p.entries {
		g := q.gate(admission.Delete, options, len(options.DryRun) > 0)
		g.nameless = true
		if _, _, err := q.deleteObject(g, e.Name, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
