// Package registrytest runs a registry over a store in memory for tests.
package registrytest

import (
	"context"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Registry is a registry of all built-in resources.
type Registry struct {
	*registry.Registry
	Warnings []string // added by requests, in order
}

// Start runs a registry until the test ends. All users may do everything,
// unless configure changes the configuration.
func Start(t testing.TB, configure ...func(*registry.Config)) *Registry {
	t.Helper()
	return StartOn(t, mem.New(), all.All(), configure...)
}

// StartOn is Start with a store and the resources to serve.
func StartOn(t testing.TB, on store.Store, resources []*resource.Resource, configure ...func(*registry.Config)) *Registry {
	t.Helper()
	c := registry.Config{
		Cache: watchcache.New(on, resources), AllowPrivileged: true, GarbageCollector: true,
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
	}
	for _, change := range configure {
		change(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Cache.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-c.Cache.Synced()
	return &Registry{Registry: registry.New(c, resources)}
}

// Request returns a request for a built-in resource in its hub version: for
// one object or, without a name, for the objects of a namespace.
func (g *Registry) Request(t testing.TB, verb, group, plural, namespace, name string) *registry.Request {
	t.Helper()
	e := g.Routes().Stored(group, plural)
	if e == nil {
		t.Fatalf("there is no %s in %q", plural, group)
	}
	return &registry.Request{
		Registry: g.Registry, Endpoint: e, Context: t.Context(), Now: time.Now(), Warnings: g,
		User: &user.DefaultInfo{Name: "admin"},
		Info: apirequest.RequestInfo{
			IsResourceRequest: true, Verb: verb, APIGroup: group, APIVersion: e.Version.Version, Resource: plural,
			Namespace: namespace, Name: name,
		},
	}
}

// AddWarning implements warning.Recorder.
func (g *Registry) AddWarning(_, text string) { g.Warnings = append(g.Warnings, text) }
