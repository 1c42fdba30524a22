package server

import (
	"net/http"
	"strings"
)

// traced returns a handler whose requests are spans, if the server has traces.
func (s *Server) traced(next http.Handler) http.Handler {
	if s.config.Traces == nil {
		return next
	}
	return s.config.Traces.Handler(next, spanName)
}

// spanName returns the path of the pattern that serves a request, as upstream's
// kubelet names its spans. The pattern is not known before the request is served.
func spanName(r *http.Request) string {
	if _, path, ok := strings.Cut(r.Pattern, " "); ok {
		return path
	}
	if r.Pattern != "" {
		return r.Pattern
	}
	return r.Method
}
