package apiserver

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

var errNoKind = errors.New("unable to determine kind and namespace from url")

// parseInfo returns the RequestInfo of a request's method, path and query, by
// upstream's rules:
//
//	/api/{version}[/namespaces/{namespace}]/{resource}[/{name}[/{subresource}[/...]]]
//	/apis/{group}/{version}[/namespaces/{namespace}]/{resource}[/{name}[/...]]
//	/api/{version}/watch/...    an old form of ?watch=true
//
// Other paths are not resource requests. parseInfo calls query only if needed.
func parseInfo(r *http.Request, query func() url.Values) (apirequest.RequestInfo, error) {
	info := apirequest.RequestInfo{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	parts := splitPath(r.URL.Path)
	if len(parts) < 3 || parts[0] != "api" && parts[0] != "apis" {
		return info, nil
	}
	rest := parts[1:]
	if parts[0] == "apis" {
		if len(rest) < 3 {
			return info, nil
		}
		info.APIGroup, rest = rest[0], rest[1:]
	}
	info.APIPrefix = parts[0]
	info.IsResourceRequest = true
	info.APIVersion, rest = rest[0], rest[1:]

	byPath := rest[0] == "watch" || rest[0] == "proxy"
	if byPath {
		if len(rest) < 2 {
			return info, errNoKind
		}
		info.Verb, rest = rest[0], rest[1:]
	} else {
		info.Verb = verbOf(r.Method)
	}
	if rest[0] == "namespaces" && len(rest) > 1 {
		info.Namespace = rest[1]
		if len(rest) > 2 && rest[2] != "status" && rest[2] != "finalize" {
			rest = rest[2:]
		}
	}
	info.Parts = rest
	info.Resource = rest[0]
	if len(rest) > 1 {
		info.Name = rest[1]
	}
	if len(rest) > 2 && info.Verb != "proxy" {
		info.Subresource = rest[2]
	}
	if info.Name == "" {
		collectionVerb(&info, query)
	}
	if !byPath && r.URL.RawQuery != "" && (info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection") {
		info.FieldSelector = query().Get("fieldSelector")
		info.LabelSelector = query().Get("labelSelector")
	}
	return info, nil
}

func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// collectionVerb replaces the verb of a request without a name by the verb for
// collections. If a field selector selects one name, that name becomes info.Name.
func collectionVerb(info *apirequest.RequestInfo, query func() url.Values) {
	switch info.Verb {
	case "delete":
		info.Verb = "deletecollection"
	case "get":
		info.Verb = "list"
		values := query()
		if watch := values["watch"]; len(watch) > 0 && isTrue(watch[0]) {
			info.Verb = "watch"
		}
		if selector := values.Get("fieldSelector"); selector != "" {
			if name, ok := selectedName(selector); ok && len(content.IsPathSegmentName(name)) == 0 {
				info.Name = name
			}
		}
	}
}

// isTrue reads a boolean of a query as upstream does: everything but "false"
// and "0" is true.
func isTrue(value string) bool {
	return !strings.EqualFold(value, "false") && value != "0"
}

func splitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// isLongRunning reports whether a request has no timeout and does not count
// among those in flight.
func isLongRunning(info *apirequest.RequestInfo) bool {
	return info.Verb == "watch" || info.Verb == "proxy" ||
		isLongRunningSubresource(info.Subresource) && info.IsResourceRequest ||
		!info.IsResourceRequest && strings.HasPrefix(info.Path, "/debug/pprof/")
}

func isLongRunningSubresource(name string) bool {
	switch name {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return false
}
