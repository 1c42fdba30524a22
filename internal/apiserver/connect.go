package apiserver

import (
	"context"
	"net/http"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// Connector reaches into nodes, pods and services for the subresources log,
// exec, attach, portforward and proxy.
type Connector interface {
	// Options decodes the query; admission sees it as the object of a CONNECT.
	Options(info *apirequest.RequestInfo, r *http.Request) (runtime.Object, error)
	// Handler returns the handler that proxies the request to its target.
	// The handler reports errors by fail, as long as nothing has been sent.
	Handler(ctx context.Context, info *apirequest.RequestInfo, options runtime.Object, r *http.Request, fail func(error)) (http.Handler, error)
}

// connect proxies the request to the node, pod or Service of the object.
func (a action) connect() error {
	if len(a.q.query()["dryRun"]) > 0 {
		return apierrors.NewBadRequest("dryRun is not supported")
	}
	if a.q.server.handlers.Connect == nil {
		return apierrors.NewServiceUnavailable("this API server has no connection to the nodes")
	}
	if err := a.authorizeAction(); err != nil {
		return err
	}
	options, err := a.q.server.handlers.Connect.Options(&a.call.Info, a.q.http)
	if err != nil {
		return err
	}
	if a.call.Subresource.Action != resource.ReadLog {
		g := a.call.Admitter(admission.Connect, nil, false)
		if err := g.Mutate(options, nil, a.call.Info.Name); err != nil {
			return err
		}
		if err := g.Validate(options, nil, a.call.Info.Name); err != nil {
			return err
		}
	}
	if err := a.call.WaitFor("", "get"); err != nil {
		return err
	}
	handler, err := a.q.server.handlers.Connect.Handler(a.call.Context, &a.call.Info, options, a.q.http, a.q.fail)
	if err != nil {
		return err
	}
	a.q.serveWith(handler)
	return nil
}

// authorizeAction requires the verb create for requests that act on containers
// by any method. WebSockets begin with GET, but reading does not permit acting.
func (a action) authorizeAction() error {
	if a.call.Info.Verb == "create" || !a.actsOnContainers() {
		return nil
	}
	attributes := a.call.Attributes()
	attributes.Verb = "create"
	return a.call.Authorize(attributes)
}

// actsOnContainers reports whether a connection may do more than read. An
// upgraded connection to a node can do anything.
func (a action) actsOnContainers() bool {
	switch a.call.Subresource.Action {
	case resource.UseContainer:
		return a.q.server.registry.Features.Enabled(feature.AuthorizePodWebsocketUpgradeCreatePermission)
	case resource.ProxyNode:
		return httpstream.IsUpgradeRequest(a.q.http) || isKubeletAction(a.call.Info.Parts)
	}
	return false
}

// isKubeletAction reports whether a proxied path, nodes/NAME/proxy/..., names a
// kubelet endpoint that acts on containers. It cleans the path first.
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
