package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/resource"
)

// serveOther serves a non-resource request.
func (q *request) serveOther() error {
	path := q.http.URL.Path
	switch h := q.server.handlerFor(path); {
	case h != nil:
		q.serveWith(h)
	case q.delegate(groupVersionOf(path)):
	case q.server.discovery.Serves(path):
		if q.http.Method != http.MethodGet {
			return status.MethodNotAllowed()
		}
		q.serveWith(q.server.discovery)
	case path == "/" || path == "/index.html":
		body, err := json.MarshalIndent(map[string][]string{"paths": q.server.paths()}, "", "  ")
		if err != nil {
			return err
		}
		q.response.send(http.StatusOK, codec.JSON, body)
	default:
		return errUnknownPath
	}
	return nil
}

// paths returns all paths, for the document at "/".
func (s *Server) paths() []string {
	paths := s.discovery.Paths()
	for path := range s.handlers.Paths {
		if !strings.HasPrefix(path, "/debug/") { // upstream lists none of these
			paths = append(paths, strings.TrimSuffix(path, "/"))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// handlerFor returns the handler of a path, or of its longest prefix that has
// one; nil if there is none.
func (s *Server) handlerFor(path string) http.Handler {
	if h := s.handlers.Paths[path]; h != nil {
		return h
	}
	for prefix := path; prefix != ""; {
		i := strings.LastIndexByte(strings.TrimSuffix(prefix, "/"), '/')
		if i < 0 {
			break
		}
		prefix = prefix[:i+1]
		if h := s.handlers.Paths[prefix]; h != nil && prefix != "/" {
			return h
		}
	}
	return nil
}

// serveResource finds the endpoint of a resource request and carries out what
// the request asks of it: a verb or an action.
func (q *request) serveResource() error {
	call, info := &q.call, &q.call.Info
	routes := call.Registry.Routes()
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	if q.delegate(gv) {
		return nil
	}
	call.Endpoint = routes.Find(gv, info.Resource)
	if call.Endpoint == nil || !inScope(call.Endpoint.Resource, info) {
		if routes.Serves(gv) {
			return status.NoSuchResource()
		}
		return errUnknownPath
	}
	if call.Endpoint.Version.Deprecated != "" {
		q.response.warnings.AddWarning("", call.Endpoint.Version.Deprecated)
	}
	call.UserAgent = q.http.UserAgent()
	switch {
	case info.Subresource != "":
		return q.serveSubresource()
	case call.Endpoint.Kind == nil:
		return q.serveVirtual()
	case !call.Endpoint.Allows(info.Verb) || !fits(q.http.Method, call):
		return status.MethodNotAllowed()
	}
	return newOperation(q).serveVerb()
}

// serveSubresource serves a subresource: a part of an object or an action on it.
func (q *request) serveSubresource() error {
	call, verb := &q.call, q.call.Info.Verb
	call.Subresource = call.Endpoint.Resource.Subresource(call.Info.Subresource)
	if call.Subresource == nil || call.Info.Name == "" || call.Endpoint.Kind == nil {
		return status.NoSuchResource()
	}
	// Only the path /watch/ gives a subresource the verb watch. It has no
	// subresources, and the verb says nothing about the method to be proxied.
	if verb == "watch" {
		return status.NoSuchResource()
	}
	act := call.Subresource.Action
	proxies := act == resource.Proxy || act == resource.ProxyNode // with any verb
	switch {
	case !proxies && !slices.Contains(call.Subresource.Verbs, verb):
		return status.MethodNotAllowed()
	case act != resource.NoAction:
		return newAction(q).perform(act)
	}
	return newOperation(q).serveSubresource()
}

// serveVirtual serves a resource that is not stored.
func (q *request) serveVirtual() error {
	endpoint, info := q.call.Endpoint, &q.call.Info
	if info.Verb == "create" && info.Name != "" {
		return status.NoSuchResource()
	}
	if !endpoint.Allows(info.Verb) || !fits(q.http.Method, &q.call) {
		return status.MethodNotAllowed()
	}
	return newAction(q).perform(endpoint.Resource.Action)
}

// fits reports whether the verb applies to the path: to an object, a collection,
// or a collection in a namespace. Only custom resources allow HEAD.
func fits(method string, call *registry.Request) bool {
	if method == http.MethodHead && !call.Endpoint.IsCustom() {
		return false
	}
	switch call.Info.Verb {
	case "watch":
		// The path /watch/ gives every method the verb watch.
		return method == http.MethodGet || method == http.MethodHead
	case "create":
		return call.Info.Name == ""
	case "update", "patch":
		return call.Info.Name != ""
	case "deletecollection":
		return !call.Endpoint.Resource.Namespaced || call.Info.Namespace != ""
	}
	return true
}

// inScope reports whether the path has a namespace exactly if the resource is
// namespaced. For the resource namespaces, the namespace is the object's name.
func inScope(r *resource.Resource, info *apirequest.RequestInfo) bool {
	switch {
	case r.Namespaced:
		return info.Namespace != "" || namespaceOptional(info)
	case r.IsNamespace:
		return info.Namespace == "" || info.Namespace == info.Name
	}
	return info.Namespace == ""
}

// namespaceOptional reports whether a request may span all namespaces.
func namespaceOptional(info *apirequest.RequestInfo) bool {
	return info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection" && info.Name == ""
}
