package registry_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/registry/registrytest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
)

// calls is a Lifecycle that records how writes finish.
type calls struct{ seen []string }

func (c *calls) begin() (func(bool), error) {
	return func(stored bool) {
		if stored {
			c.seen = append(c.seen, "stored")
		} else {
			c.seen = append(c.seen, "not stored")
		}
	}, nil
}

func (c *calls) BeginCreate(context.Context, resource.Object, bool) (func(bool), error) {
	return c.begin()
}

func (c *calls) BeginUpdate(context.Context, resource.Object, resource.Object, bool) (func(bool), error) {
	return c.begin()
}

func (c *calls) AfterDelete(context.Context, resource.Object) { c.seen = append(c.seen, "deleted") }

// failing is a store whose writes of config maps happen, but return err if it is set.
type failing struct {
	store.Store
	err error
}

func (f *failing) answer(key string, revision int64, err error) (int64, error) {
	if f.err != nil && err == nil && strings.HasPrefix(key, "/registry/configmaps/") {
		return 0, f.err
	}
	return revision, err
}

func (f *failing) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (int64, error) {
	revision, err := f.Store.Create(ctx, key, value, ttl)
	return f.answer(key, revision, err)
}

func (f *failing) Update(ctx context.Context, key string, value []byte, expected int64, ttl time.Duration) (int64, error) {
	revision, err := f.Store.Update(ctx, key, value, expected, ttl)
	return f.answer(key, revision, err)
}

func (f *failing) Delete(ctx context.Context, key string, expected int64) (int64, error) {
	revision, err := f.Store.Delete(ctx, key, expected)
	return f.answer(key, revision, err)
}

// A lifecycle is told the outcome of a write only if the outcome is known, and
// of a deletion only if the request deleted the object.
func TestLifecycleHearsOutcomes(t *testing.T) {
	made := configMap("x", nil)
	made.Finalizers = []string{"example.com/wait"}
	create := func(t *testing.T, g *registrytest.Registry, dryRun ...string) error {
		_, err := g.Request(t, "create", "", "configmaps", "default", "").Create(made.DeepCopy(), &metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	update := func(t *testing.T, g *registrytest.Registry, finalizers []string, dryRun ...string) error {
		_, _, err := g.Request(t, "update", "", "configmaps", "default", "x").Update(&metav1.UpdateOptions{DryRun: dryRun}, func() (resource.Object, error) {
			next := configMap("x", map[string]string{"n": "1"})
			next.Finalizers = finalizers
			return next, nil
		})
		return err
	}
	for _, test := range []struct {
		name          string
		exists, dying bool
		err           error // of the store
		write         func(*testing.T, *registrytest.Registry) error
		fails         bool
		want          []string
	}{
		{name: "create", write: func(t *testing.T, g *registrytest.Registry) error { return create(t, g) }, want: []string{"stored"}},
		{name: "create twice", exists: true, write: func(t *testing.T, g *registrytest.Registry) error { return create(t, g) }, fails: true, want: []string{"not stored"}},
		{name: "create as a dry run", write: func(t *testing.T, g *registrytest.Registry) error { return create(t, g, "All") }, want: []string{"not stored"}},
		{name: "create without an answer", err: store.ErrUnavailable, write: func(t *testing.T, g *registrytest.Registry) error { return create(t, g) }, fails: true},
		{name: "create until the deadline", err: context.DeadlineExceeded, write: func(t *testing.T, g *registrytest.Registry) error { return create(t, g) }, fails: true},
		{name: "update", exists: true, write: func(t *testing.T, g *registrytest.Registry) error { return update(t, g, made.Finalizers) }, want: []string{"stored"}},
		{name: "update as a dry run", exists: true, write: func(t *testing.T, g *registrytest.Registry) error { return update(t, g, made.Finalizers, "All") }, want: []string{"not stored"}},
		{name: "update without an answer", exists: true, err: store.ErrUnavailable, write: func(t *testing.T, g *registrytest.Registry) error { return update(t, g, made.Finalizers) }, fails: true},
		{name: "last finalizer", exists: true, dying: true, write: func(t *testing.T, g *registrytest.Registry) error { return update(t, g, nil) }, want: []string{"deleted", "stored"}},
		{name: "last finalizer of what another deleted", exists: true, dying: true, err: store.ErrNotFound, write: func(t *testing.T, g *registrytest.Registry) error { return update(t, g, nil) }, want: []string{"stored"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, s := &calls{}, &failing{Store: mem.New()}
			g := registrytest.StartOn(t, s, all.All(), func(config *registry.Config) {
				config.Lifecycles = map[schema.GroupResource]registry.Lifecycle{{Resource: "configmaps"}: c}
			})
			if test.exists {
				if err := create(t, g); err != nil {
					t.Fatal(err)
				}
			}
			if test.dying {
				if _, _, err := g.Request(t, "delete", "", "configmaps", "default", "x").Delete(&metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			// An outdated cache would lead to a first try that is not stored.
			if _, err := g.Cache.Fresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.seen, s.err = nil, test.err
			if err := test.write(t, g); (err != nil) != test.fails {
				t.Errorf("%v", err)
			}
			if !slices.Equal(c.seen, test.want) {
				t.Errorf("the lifecycle saw %q, want %q", c.seen, test.want)
			}
		})
	}
}
