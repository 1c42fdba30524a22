package server

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/httpserver"
)

// apiServers is the group of the API server. Its connections carry the requests
// of many users, whose number it bounds itself.
const apiServers = "system:kubelet-api-admin"

// authorized returns a handler that authenticates and authorizes requests
// before it calls next.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.config.Authenticator == nil || s.config.Authorizer == nil {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		info, ok, err := s.config.Authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			klog.FromContext(r.Context()).V(2).Info("Refused a request without valid credentials", "path", r.URL.Path, "err", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		attributes := requestAttributes(r, info.User, s.config.NodeName)
		for _, a := range attributes {
			decision, _, err := s.config.Authorizer.Authorize(r.Context(), a)
			if err != nil {
				klog.FromContext(r.Context()).Error(err, "A request to the kubelet could not be authorized", "user", a.GetUser().GetName(), "path", r.URL.Path)
				http.Error(w, "Authorization error "+forbidden(a), http.StatusInternalServerError)
				return
			}
			if decision == authorizer.DecisionAllow {
				if info.User.GetName() != user.Anonymous && !httpserver.MarkAuthenticated(r.Context(), info.User, apiServers) {
					w.Header().Set("Connection", "close")
					http.Error(w, httpserver.TooManyConnections, http.StatusTooManyRequests)
					return
				}
				next.ServeHTTP(w, r)
				return
			}
		}
		http.Error(w, "Forbidden "+forbidden(attributes[len(attributes)-1]), http.StatusForbidden)
	})
}

func forbidden(a authorizer.Attributes) string {
	return fmt.Sprintf("(user=%s, verb=%s, resource=%s, subresource(s)=[%s])", a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetSubresource())
}

// requestAttributes returns the permissions, one of which a request needs: subresources
// of the node, the most specific first.
func requestAttributes(r *http.Request, u user.Info, nodeName string) []authorizer.Attributes {
	verb := ""
	switch r.Method {
	case http.MethodPost:
		verb = "create"
	case http.MethodGet, http.MethodHead:
		verb = "get"
	case http.MethodPut:
		verb = "update"
	case http.MethodPatch:
		verb = "patch"
	case http.MethodDelete:
		verb = "delete"
	}
	subresources := []string{"proxy"}
	is := func(root string) bool { return r.URL.Path == root || strings.HasPrefix(r.URL.Path, root+"/") }
	switch {
	case is("/exec"), is("/attach"), is("/portForward"), is("/run"):
		// These act on a container, though WebSockets begin with GET.
		verb = "create"
	case is("/stats"):
		subresources = []string{"stats"}
	case is("/metrics"):
		subresources = []string{"metrics"}
	case is("/logs"):
		subresources = []string{"log"}
	case is("/checkpoint"):
		subresources = []string{"checkpoint"}
	case is("/pods"), is("/runningpods"):
		subresources = []string{"pods", "proxy"}
	case is("/healthz"):
		subresources = []string{"healthz", "proxy"}
	case is("/configz"), is("/flagz"):
		subresources = []string{"configz", "proxy"}
	case is("/statusz"):
		subresources = []string{"statusz", "proxy"}
	}
	var out []authorizer.Attributes
	for _, sub := range subresources {
		out = append(out, authorizer.AttributesRecord{
			User: u, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: sub, Name: nodeName, ResourceRequest: true, Path: r.URL.Path,
		})
	}
	return out
}
