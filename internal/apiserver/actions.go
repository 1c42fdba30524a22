package apiserver

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/pods"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/apiserver/tokens"
	"github.com/coracle-io/coracle/internal/resource"
)

// Connector reaches into nodes, pods and services for the subresources log,
// exec, attach, portforward and proxy.
type Connector interface {
	// Options decodes the query; admission sees it as the object of a CONNECT.
	Options(info *apirequest.RequestInfo, r *http.Request) (runtime.Object, error)
	// Handler finds out where the request goes and returns what answers it.
	// The handler reports errors by fail, as long as nothing has been sent.
	Handler(ctx context.Context, info *apirequest.RequestInfo, options runtime.Object, r *http.Request, fail func(error)) (http.Handler, error)
}

// action is an operation upon a part of an object, or one that has another
// meaning than the verb.
type action struct{ operation }

// serveSubresource serves a part of an object, or an action on it.
func (q action) serveSubresource() error {
	q.Subresource = q.Endpoint.Resource.Subresource(q.Info.Subresource)
	if q.Subresource == nil || q.Info.Name == "" || q.Endpoint.Kind == nil {
		return status.NoSuchResource()
	}
	verb, act := q.Info.Verb, q.Subresource.Action
	passesOn := act == resource.Proxy || act == resource.ProxyNode // whatever verb there is
	if !passesOn && !slices.Contains(q.Subresource.Verbs, verb) {
		return status.MethodNotAllowed()
	}
	switch {
	case act != resource.NoAction:
		return q.carryOut(act)
	case verb == "get":
		return q.get()
	case q.Subresource.Scale != nil:
		return q.updateScale()
	case verb == "update":
		return q.update()
	case verb == "patch":
		return q.patch()
	}
	return status.MethodNotAllowed()
}

// serveVirtual answers a resource that is not stored.
func (q action) serveVirtual() error {
	if q.Info.Verb == "create" && q.Info.Name != "" {
		return status.NoSuchResource()
	}
	if !q.Endpoint.Allows(q.Info.Verb) || !q.fits() {
		return status.MethodNotAllowed()
	}
	return q.carryOut(q.Endpoint.Resource.Action)
}

// carryOut does what a kind says that a resource or subresource is for.
func (q action) carryOut(act resource.Action) error {
	switch act {
	case resource.ReadLog, resource.UseContainer, resource.Proxy, resource.ProxyNode:
		return q.connect()
	case resource.Bind:
		return q.bind()
	case resource.Evict:
		return q.evict()
	case resource.IssueToken:
		return q.issueToken()
	case resource.Review:
		return q.review()
	case resource.ReadComponents:
		return q.componentStatuses()
	}
	return status.MethodNotAllowed()
}

// connect hands the request over to where the object runs.
func (q action) connect() error {
	if len(q.query()["dryRun"]) > 0 {
		return apierrors.NewBadRequest("dryRun is not supported")
	}
	if q.server.Connect == nil {
		return apierrors.NewServiceUnavailable("this API server has no connection to the nodes")
	}
	if err := q.authorizeAction(); err != nil {
		return err
	}
	options, err := q.server.Connect.Options(&q.Info, q.http)
	if err != nil {
		return err
	}
	if q.Subresource.Action != resource.ReadLog {
		g := q.Gate(admission.Connect, nil, false)
		if err := g.Mutate(options, nil, q.Info.Name); err != nil {
			return err
		}
		if err := g.Validate(options, nil, q.Info.Name); err != nil {
			return err
		}
	}
	if err := q.WaitFor("", "get"); err != nil {
		return err
	}
	handler, err := q.server.Connect.Handler(q.Context, &q.Info, options, q.http, q.fail)
	if err != nil {
		return err
	}
	q.handOver(handler)
	return nil
}

// authorizeAction asks for the right to create where a container is acted on,
// by whatever method: to read is not to act, though WebSockets begin by GET.
func (q action) authorizeAction() error {
	if q.Info.Verb == "create" || !q.actsOnContainers() {
		return nil
	}
	a := q.Attributes()
	a.Verb = "create"
	return q.Authorize(a)
}

// actsOnContainers says that a connection may do more in a container than show
// what is there. Upgraded, a connection to a node can be anything.
func (q action) actsOnContainers() bool {
	switch q.Subresource.Action {
	case resource.UseContainer:
		return q.server.Features.Enabled("AuthorizePodWebsocketUpgradeCreatePermission")
	case resource.ProxyNode:
		return httpstream.IsUpgradeRequest(q.http) || isKubeletAction(q.Info.Parts)
	}
	return false
}

// isKubeletAction says that a proxied path, nodes/NAME/proxy/..., is one by
// which kubelets act on containers, once it is cleaned.
func isKubeletAction(parts []string) bool {
	if len(parts) < 4 {
		return false
	}
	root, _, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+strings.Join(parts[3:], "/")), "/"), "/")
	switch strings.ToLower(root) {
	case "exec", "attach", "portforward", "run", "cri":
		return true
	}
	return false
}

// decodeAction reads the body of an action as an object of another kind than
// the resource's.
func (q action) decodeAction(obj runtime.Object, kind schema.GroupVersionKind) (*metav1.CreateOptions, error) {
	body, options, err := received(q.operation, createOptions)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	if err := q.DecodeInto(obj, kind, body, options.FieldValidation); err != nil {
		return nil, err
	}
	q.recordBody(obj, kind)
	return options, nil
}

// bind gives a pod its node.
func (q action) bind() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	binding := &corev1.Binding{}
	options, err := q.decodeAction(binding, corev1.SchemeGroupVersion.WithKind("Binding"))
	if err != nil {
		return err
	}
	if err := pods.Bind(&q.Request, binding, options); err != nil {
		return err
	}
	return out.plain().object(http.StatusCreated, status.Created())
}

// evict deletes a pod if its disruption budget allows.
func (q action) evict() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	eviction := &policyv1.Eviction{}
	options, err := q.decodeAction(eviction, q.Subresource.Kind)
	if err != nil {
		return err
	}
	if err := pods.Evict(&q.Request, eviction, options); err != nil {
		return err
	}
	return out.plain().object(http.StatusCreated, status.Created())
}

// issueToken answers serviceaccounts/token.
func (q action) issueToken() error {
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	if q.server.ServiceAccountTokens == nil {
		return status.NoSuchResource()
	}
	wanted := &authenticationv1.TokenRequest{}
	options, err := q.decodeAction(wanted, q.Subresource.Kind)
	if err != nil {
		return err
	}
	issued, err := tokens.Issue(&q.Request, q.server.ServiceAccountTokens, wanted, options)
	if err != nil {
		return err
	}
	return out.object(http.StatusCreated, issued)
}

// review answers a review with its status filled in.
func (q action) review() error {
	out, err := q.negotiateFor(codec.Accepted{Protobuf: q.Endpoint.Codec.HasProtobuf(), Convert: true, NoTable: true})
	if err != nil {
		return err
	}
	obj, options, err := q.newObject()
	if err != nil {
		return err
	}
	if err := q.server.reviews.Create(&q.Request, obj, options); err != nil {
		return err
	}
	return out.plain().object(http.StatusCreated, obj)
}

// componentStatuses answers upstream's deprecated list of components.
func (q action) componentStatuses() error {
	q.warnings.AddWarning("", "v1 ComponentStatus is deprecated in v1.19+")
	out, err := q.negotiate()
	if err != nil {
		return err
	}
	if q.Info.Verb == "list" {
		return out.page(&registry.Page{Entries: q.server.components.List(q.Context)})
	}
	e, ok := q.server.components.Get(q.Context, q.Info.Name)
	if !ok {
		return apierrors.NewNotFound(q.Endpoint.GroupResource(), q.Info.Name)
	}
	return out.entry(http.StatusOK, e)
}
