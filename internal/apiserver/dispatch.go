package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/resource"
)

// serveOther answers what is not about a resource.
func (q *request) serveOther() error {
	path := q.http.URL.Path
	switch h := q.server.handlerFor(path); {
	case h != nil:
		q.handOver(h)
	case q.delegate(groupVersionOf(path)):
	case q.server.discovery.Serves(path):
		if q.http.Method != http.MethodGet {
			return errMethodNotAllowed()
		}
		q.handOver(q.server.discovery)
	case path == "/" || path == "/index.html":
		return q.listPaths()
	default:
		return errUnknownPath
	}
	return nil
}

// listPaths answers "/" with everything that can be asked for.
func (q *request) listPaths() error {
	paths := q.server.discovery.Paths()
	for path := range q.server.Handlers {
		if path != fairness.DumpPath { // which upstream does not list
			paths = append(paths, strings.TrimSuffix(path, "/"))
		}
	}
	slices.Sort(paths)
	body, err := json.MarshalIndent(map[string][]string{"paths": slices.Compact(paths)}, "", "  ")
	if err != nil {
		return err
	}
	q.send(http.StatusOK, codec.JSON, body)
	return nil
}

func (s *Server) handlerFor(path string) http.Handler {
	if h := s.Handlers[path]; h != nil {
		return h
	}
	for prefix := path; prefix != ""; {
		i := strings.LastIndexByte(strings.TrimSuffix(prefix, "/"), '/')
		if i < 0 {
			break
		}
		prefix = prefix[:i+1]
		if h := s.Handlers[prefix]; h != nil && prefix != "/" {
			return h
		}
	}
	return nil
}

// errUnknownPath is answered as net/http does, not with a Status.
var errUnknownPath = errors.New("404 page not found")

// serveResource finds the endpoint and calls its verb.
func (q *request) serveResource() error {
	table := q.server.routes.Load()
	gv := schema.GroupVersion{Group: q.info.APIGroup, Version: q.info.APIVersion}
	if q.delegate(gv) {
		return nil
	}
	q.endpoint = table.find(gv, q.info.Resource)
	if q.endpoint == nil || !inScope(q.endpoint.resource, &q.info) {
		if table.serves(gv) {
			return errNoSuchResource()
		}
		return errUnknownPath
	}
	if q.endpoint.version.Deprecated != "" {
		q.warnings.AddWarning("", q.endpoint.version.Deprecated)
	}
	if q.info.Subresource != "" {
		return q.serveSubresource()
	}
	return q.serveVerb()
}

// inScope says whether the path has a namespace where the resource has one. That
// of a namespace itself counts as one.
func inScope(r *resource.Resource, info *apirequest.RequestInfo) bool {
	switch {
	case r.Namespaced:
		return info.Namespace != "" || namespaceOptional(info)
	case r.Group == "" && r.Plural == "namespaces":
		return info.Namespace == "" || info.Namespace == info.Name
	}
	return info.Namespace == ""
}

// namespaceOptional says that a namespaced resource can be asked for without
// a namespace: in all of them.
func namespaceOptional(info *apirequest.RequestInfo) bool {
	return info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection" && info.Name == ""
}

func (q *request) serveVerb() error {
	if q.endpoint.kind == nil {
		return q.serveVirtual()
	}
	verb := q.info.Verb
	if !q.endpoint.allows(verb) || !q.fits() {
		return errMethodNotAllowed()
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
	return errMethodNotAllowed()
}

// fits says whether the path is one for the verb: of an object, a collection
// or a collection in a namespace. HEAD is for custom resources alone.
func (q *request) fits() bool {
	if q.http.Method == http.MethodHead && q.endpoint.fields != nil {
		return false
	}
	switch q.info.Verb {
	case "create":
		return q.info.Name == ""
	case "update", "patch":
		return q.info.Name != ""
	case "deletecollection":
		return !q.endpoint.resource.Namespaced || q.info.Namespace != ""
	}
	return true
}
