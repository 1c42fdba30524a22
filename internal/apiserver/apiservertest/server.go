// Package apiservertest runs an API server over a store in memory for tests.
package apiservertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Server is a running API server.
type Server struct {
	*apiserver.Server
	Store store.Store
	Cache *watchcache.Cache
	// URL and Config reach it over HTTP.
	URL    string
	Config *rest.Config
}

// Start runs an API server until the test ends. The header X-Test-User says
// who sends a request: "admin", who may do everything, if it is missing;
// others may only ask who they are, and "unknown" is not let in. configure
// may change the configuration.
func Start(t testing.TB, configure ...func(*apiserver.Config)) *Server {
	t.Helper()
	return StartOn(t, mem.New(), configure...)
}

// StartOn is Start over a store that may be shared with other servers.
func StartOn(t testing.TB, on store.Store, configure ...func(*apiserver.Config)) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{Store: on}
	resources := all.All()
	s.Cache = watchcache.New(s.Store, resources)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Cache.Run(ctx)
	}()
	config := apiserver.Config{
		Resources:     resources,
		Cache:         s.Cache,
		Authenticator: authenticator.RequestFunc(authenticate),
		Authorizer:    authorizer.AuthorizerFunc(authorize),
	}
	for _, c := range configure {
		c(&config)
	}
	var err error
	if s.Server, err = apiserver.New(config); err != nil {
		t.Fatal(err)
	}
	<-s.Cache.Synced()
	listener := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		listener.CloseClientConnections()
		cancel()
		listener.Close()
		<-done
	})
	s.URL = listener.URL
	s.Config = &rest.Config{Host: s.URL, QPS: -1}
	return s
}

func authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	name := r.Header.Get("X-Test-User")
	if name == "" {
		name = "admin"
	}
	if name == "unknown" {
		return nil, false, nil
	}
	groups := []string{user.AllAuthenticated}
	if name == "admin" {
		groups = append(groups, user.SystemPrivilegedGroup)
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: groups}}, true, nil
}

func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) || a.GetResource() == "selfsubjectreviews" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
