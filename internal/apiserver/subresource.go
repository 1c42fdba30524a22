package apiserver

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/streaming/pkg/httpstream"
)

// TokenIssuer issues the tokens of service accounts. The request's spec is
// filled in and checked by it.
type TokenIssuer interface {
	Answer(ctx context.Context, sa *corev1.ServiceAccount, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Connector reaches into nodes, pods and services for the subresources log,
// exec, attach, portforward and proxy.
type Connector interface {
	// Options decodes the query; admission sees it as the object of a CONNECT.
	Options(info *apirequest.RequestInfo, r *http.Request) (runtime.Object, error)
	// Handler finds out where the request goes and returns what answers it.
	// The handler reports errors by fail, as long as nothing has been sent.
	Handler(ctx context.Context, info *apirequest.RequestInfo, options runtime.Object, r *http.Request, fail func(error)) (http.Handler, error)
}

// serveSubresource serves a part of an object, or an action on it.
func (q *request) serveSubresource() error {
	q.sub = q.endpoint.resource.Subresource(q.info.Subresource)
	if q.sub == nil || q.info.Name == "" || q.endpoint.kind == nil {
		return errNoSuchResource()
	}
	verb := q.info.Verb
	if q.sub.Name != "proxy" && !slices.Contains(q.sub.Verbs, verb) { // which passes on whatever there is
		return errMethodNotAllowed()
	}
	switch {
	case isConnection(q.sub.Name):
		return q.connect()
	case q.sub.Name == "binding":
		return q.bind()
	case q.sub.Name == "eviction":
		return q.evict()
	case q.sub.Name == "token":
		return q.issueToken()
	case verb == "get":
		return q.get()
	case q.sub.Scale != nil:
		return q.updateScale()
	case verb == "update":
		return q.update()
	case verb == "patch":
		return q.patch()
	}
	return errMethodNotAllowed()
}

// isConnection names the subresources that reach into a node, pod or service.
func isConnection(name string) bool {
	switch name {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// connect hands the request over to where the object runs.
func (q *request) connect() error {
	if len(q.query()["dryRun"]) > 0 {
		return apierrors.NewBadRequest("dryRun is not supported")
	}
	if q.server.Connect == nil {
		return apierrors.NewServiceUnavailable("this API server has no connection to the nodes")
	}
	if err := q.authorizeAction(); err != nil {
		return err
	}
	options, err := q.server.Connect.Options(&q.info, q.http)
	if err != nil {
		return err
	}
	if q.sub.Name != "log" {
		g := q.gate(admission.Connect, nil, false)
		if err := g.mutate(options, nil, q.info.Name); err != nil {
			return err
		}
		if err := g.validate(options, nil, q.info.Name); err != nil {
			return err
		}
	}
	if err := q.waitFor("", "get"); err != nil {
		return err
	}
	handler, err := q.server.Connect.Handler(q.ctx, &q.info, options, q.http, q.fail)
	if err != nil {
		return err
	}
	q.handOver(handler)
	return nil
}

// authorizeAction asks for the right to create where a container is acted on,
// by whatever method: to read is not to act, though WebSockets begin by GET.
func (q *request) authorizeAction() error {
	if q.info.Verb == "create" || !q.actsOnContainers() {
		return nil
	}
	a := q.attributes()
	a.Verb = "create"
	return q.allowed(a)
}

// actsOnContainers says that a connection may do more in a container than show
// what is there. Upgraded, a connection to a node can be anything.
func (q *request) actsOnContainers() bool {
	switch q.sub.Name {
	case "exec", "attach", "portforward":
		return q.server.Features.Enabled("AuthorizePodWebsocketUpgradeCreatePermission")
	case "proxy":
		return q.info.Resource == "nodes" && (httpstream.IsUpgradeRequest(q.http) || isKubeletAction(q.info.Parts))
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
func (q *request) decodeAction(obj runtime.Object, kind schema.GroupVersionKind) (*metav1.CreateOptions, error) {
	in, err := q.input()
	if err != nil {
		return nil, err
	}
	options, err := createOptions(q.query())
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	if err := q.decodeInto(obj, kind, in, options.FieldValidation); err != nil {
		return nil, err
	}
	q.recordBody(obj, kind)
	return options, nil
}

// issueToken answers serviceaccounts/token. Nothing is stored, so a dry run is
// like any other.
func (q *request) issueToken() error {
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	if q.server.ServiceAccountTokens == nil {
		return errNoSuchResource()
	}
	wanted := &authenticationv1.TokenRequest{}
	options, err := q.decodeAction(wanted, q.sub.Kind)
	if err != nil {
		return err
	}
	if err := q.placeInNamespace(wanted); err != nil {
		return err
	}
	g := q.gate(admission.Create, options, len(options.DryRun) > 0)
	if err := g.mutate(wanted, nil, q.info.Name); err != nil {
		return err
	}
	e, err := q.read("")
	if err != nil {
		return err
	}
	if err := g.validate(wanted, nil, q.info.Name); err != nil {
		return err
	}
	sa, ok := e.Object.(*corev1.ServiceAccount)
	if !ok {
		return errNoSuchResource()
	}
	issued, err := q.server.ServiceAccountTokens.Answer(q.ctx, sa, wanted)
	if err != nil {
		return err
	}
	issued.SetGroupVersionKind(q.sub.Kind)
	return q.sendObject(http.StatusCreated, issued, o)
}
