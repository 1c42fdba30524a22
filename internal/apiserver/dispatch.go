package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/status"
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
			return status.MethodNotAllowed()
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

// serveResource finds the endpoint and calls its verb.
func (q *request) serveResource() error {
	table := q.Registry.Routes()
	gv := schema.GroupVersion{Group: q.Info.APIGroup, Version: q.Info.APIVersion}
	if q.delegate(gv) {
		return nil
	}
	q.Endpoint = table.Find(gv, q.Info.Resource)
	if q.Endpoint == nil || !inScope(q.Endpoint.Resource, &q.Info) {
		if table.Serves(gv) {
			return status.NoSuchResource()
		}
		return errUnknownPath
	}
	if q.Endpoint.Version.Deprecated != "" {
		q.warnings.AddWarning("", q.Endpoint.Version.Deprecated)
	}
	q.UserAgent = q.http.UserAgent()
	switch {
	case q.Info.Subresource != "":
		return action{operation{q}}.serveSubresource()
	case q.Endpoint.Kind == nil:
		return action{operation{q}}.serveVirtual()
	}
	return operation{q}.serveVerb()
}

// inScope says whether the path has a namespace where the resource has one. That
// of a namespace itself counts as one.
func inScope(r *resource.Resource, info *apirequest.RequestInfo) bool {
	switch {
	case r.Namespaced:
		return info.Namespace != "" || namespaceOptional(info)
	case r.IsNamespace:
		return info.Namespace == "" || info.Namespace == info.Name
	}
	return info.Namespace == ""
}

// namespaceOptional says that a namespaced resource can be asked for without
// a namespace: in all of them.
func namespaceOptional(info *apirequest.RequestInfo) bool {
	return info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection" && info.Name == ""
}
