package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// delegate proxies the request to the aggregated server of a group version. It
// returns false if there is none. The proxied request ends when this server
// shuts down.
func (q *request) delegate(gv schema.GroupVersion) bool {
	if q.server.handlers.Aggregated == nil || gv.Version == "" {
		return false
	}
	h := q.server.handlers.Aggregated.Handler(gv)
	if h == nil {
		return false
	}
	defer q.endOnShutdown()()
	if q.call.Info.Verb == "watch" {
		q.held.seat.leave() // the aggregated server does the work
	}
	q.serveWith(h)
	return true
}

// aggregates reports whether an aggregated API server answers a request.
func (s *Server) aggregates(i *apirequest.RequestInfo) bool {
	return s.handlers.Aggregated != nil && i.IsResourceRequest &&
		s.handlers.Aggregated.Handler(schema.GroupVersion{Group: i.APIGroup, Version: i.APIVersion}) != nil
}

// groupVersionOf returns the group version of a discovery path,
// /apis/{group}/{version} or /api/{version}. It is empty for other paths.
func groupVersionOf(path string) schema.GroupVersion {
	parts := splitPath(path)
	switch {
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}
	}
	return schema.GroupVersion{}
}
