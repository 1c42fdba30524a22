package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// delegate lets the server behind an APIService answer, if there is one for
// the group version. The answer ends when this server shuts down.
func (q *request) delegate(gv schema.GroupVersion) bool {
	if q.server.Aggregated == nil || gv.Version == "" {
		return false
	}
	h := q.server.Aggregated.Handler(gv)
	if h == nil {
		return false
	}
	defer q.endOnShutdown()()
	if q.Info.Verb == "watch" {
		q.seat.leave() // the other server does the work
	}
	q.handOver(h)
	return true
}

// groupVersionOf returns the group version whose discovery document is at a
// path, /apis/{group}/{version}; empty for any other path.
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
