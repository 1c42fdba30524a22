package bootstrap

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/authz"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource/apiregistration"
	"github.com/coracle-io/coracle/internal/resource/flowcontrol"
	"github.com/coracle-io/coracle/internal/resource/networking"
	"github.com/coracle-io/coracle/internal/resource/rbac"
	"github.com/coracle-io/coracle/internal/resource/scheduling"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// newCache runs a watch cache on s until the test ends.
func newCache(t *testing.T, s store.Store) *watchcache.Cache {
	t.Helper()
	c := watchcache.New(s, slices.Concat(rbac.Resources(), scheduling.Resources(), flowcontrol.Resources(), apiregistration.Resources(), networking.Resources()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done //nolint:errcheck // canceled
	})
	<-c.Synced()
	return c
}

func reconcileCache(t *testing.T, c *watchcache.Cache) int64 {
	t.Helper()
	if err := Reconcile(t.Context(), objects.Cache{Cache: c}, CacheWriter{Cache: c, Clock: clock.RealClock{}}, options()); err != nil {
		t.Fatal(err)
	}
	revision, err := c.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func TestComponentsAreAuthorized(t *testing.T) {
	s := mem.New()
	c := newCache(t, s)
	first := reconcileCache(t, c)
	if again := reconcileCache(t, c); again != first {
		t.Errorf("a second server wrote %d times", again-first)
	}
	if again := reconcileCache(t, newCache(t, s)); again != first {
		t.Errorf("a restarted server wrote %d times", again-first)
	}
	z, err := authz.New(authz.Config{Authorizers: authz.InOrder(authz.ModeNode, authz.ModeRBAC), Source: objects.Cache{Cache: c}, NodeRules: NodeRules()})
	if err != nil {
		t.Fatal(err)
	}
	scheduler := &user.DefaultInfo{Name: "system:kube-scheduler", Groups: []string{user.AllAuthenticated}}
	replicas := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:replication-controller", Groups: []string{user.AllAuthenticated}}
	node := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	nobody := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	for _, test := range []struct {
		who   user.Info
		a     authorizer.AttributesRecord
		allow bool
	}{
		{scheduler, authorizer.AttributesRecord{Verb: "create", Resource: "pods", Subresource: "binding", Namespace: "default"}, true},
		{scheduler, authorizer.AttributesRecord{Verb: "create", Resource: "pods", Namespace: "default"}, false},
		{replicas, authorizer.AttributesRecord{Verb: "create", Resource: "pods", Namespace: "default"}, true},
		{replicas, authorizer.AttributesRecord{Verb: "update", Resource: "replicationcontrollers", Subresource: "status", Namespace: "default"}, true},
		{replicas, authorizer.AttributesRecord{Verb: "get", Resource: "secrets", Namespace: "default"}, false},
		{node, authorizer.AttributesRecord{Verb: "update", Resource: "nodes", Subresource: "status", Name: "n1"}, true},
		{node, authorizer.AttributesRecord{Verb: "list", Resource: "services"}, true},
		{node, authorizer.AttributesRecord{Verb: "get", Resource: "secrets", Namespace: "default", Name: "s"}, false},
		{&user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}, authorizer.AttributesRecord{Verb: "delete", Resource: "nodes"}, true},
		{nobody, authorizer.AttributesRecord{Verb: "list", Resource: "pods"}, false},
	} {
		test.a.User, test.a.ResourceRequest = test.who, true
		d, reason, err := z.Authorize(t.Context(), test.a)
		if (d == authorizer.DecisionAllow) != test.allow || err != nil {
			t.Errorf("%s %s %s/%s: %v %q %v", test.who.GetName(), test.a.Verb, test.a.Resource, test.a.Subresource, d, reason, err)
		}
	}
}

func BenchmarkFreshServer(b *testing.B) {
	for b.Loop() {
		if _, err := wantedObjects(options()); err != nil {
			b.Fatal(err)
		}
	}
}
