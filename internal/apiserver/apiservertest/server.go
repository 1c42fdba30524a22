// Package apiservertest runs the request path of an API server, with a store in
// memory, for tests of that path: without default objects, and with only the
// admission and extensions that a test configures.
//
// It wires apiserver.New itself because tests replace parts that a whole API
// server builds from flags: the store, the clock, limits, admission, and what
// connects to nodes. Tests of a whole API server use component/apiserver, and
// tests of a control plane use cluster/clustertest.
package apiservertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Server is an API server over a store.
type Server struct {
	*apiserver.Server
	Store store.Store
	Cache *watchcache.Cache
	// URL and Config are for clients over HTTP; zero without a listener.
	URL    string
	Config *rest.Config
}

// New returns an API server. It answers once Cache, which the caller runs, is
// synced. The header X-Test-User names the user of a request. The default is
// "admin", who may do everything. Other users may only create
// selfsubjectreviews, and "unknown" is not authenticated. There is no priority
// and fairness. configure may change the configuration.
func New(on store.Store, configure ...func(*apiserver.Config)) (*Server, error) {
	resources := all.All()
	s := &Server{Store: on, Cache: watchcache.New(on, resources)}
	config := apiserver.Config{
		Resources: resources,
		Registry:  registry.Config{Cache: s.Cache, Authorizer: authorizer.AuthorizerFunc(authorize), AllowPrivileged: true, GarbageCollector: true},
		Access:    apiserver.AccessConfig{Authenticator: authenticator.RequestFunc(authenticate)},
		Limits:    apiserver.DefaultLimits(),
	}
	config.Limits.PriorityAndFairness = false
	for _, c := range configure {
		c(&config)
	}
	var err error
	s.Server, err = apiserver.New(config)
	return s, err
}

// Start runs the API server of New over HTTP until the test ends, with a store
// in memory.
func Start(t testing.TB, configure ...func(*apiserver.Config)) *Server {
	t.Helper()
	return StartOn(t, mem.New(), configure...)
}

// StartOn is Start with a store that several servers may share.
func StartOn(t testing.TB, on store.Store, configure ...func(*apiserver.Config)) *Server {
	t.Helper()
	s, stop := start(t, on, configure)
	listener := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		listener.CloseClientConnections()
		stop()
		listener.Close() // waits for requests
	})
	s.URL = listener.URL
	s.Config = &rest.Config{Host: s.URL, QPS: -1}
	return s
}

// StartInProcess is Start without a listener: requests go to Handler. It is for
// testing/synctest, whose clock stands still while a goroutine waits for the
// network.
func StartInProcess(t testing.TB, configure ...func(*apiserver.Config)) *Server {
	t.Helper()
	s, _ := start(t, mem.New(), configure)
	return s
}

// start returns a server whose cache is synced. The cache runs until stop is
// called or the test ends.
func start(t testing.TB, on store.Store, configure []func(*apiserver.Config)) (s *Server, stop func()) {
	t.Helper()
	s, err := New(on, configure...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Cache.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-s.Cache.Synced()
	return s, cancel
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
	if strings.HasPrefix(name, "system:node:") {
		groups = append(groups, user.NodesGroup)
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: groups}}, true, nil
}

func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) || a.GetResource() == "selfsubjectreviews" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
