package watchcache_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// TestAPanicOverOneObject checks that an object that causes a panic is hidden
// like one that cannot be decoded, both when the cache is initialized and when
// the object changes, and that the other objects are served.
func TestAPanicOverOneObject(t *testing.T) {
	s := mem.New()
	broken := resource.Define(resource.Definition[corev1.Pod, *corev1.Pod]{
		GroupVersion: corev1.SchemeGroupVersion, Names: resource.Names{Kind: "Pod", Plural: "pods"},
		FieldSelectors: resource.FieldSelectors[*corev1.Pod]{
			SelectableFields: func(p *corev1.Pod) fields.Set {
				if p.Labels["app"] == "broken" {
					panic("over one object")
				}
				return fields.Set{"spec.nodeName": p.Spec.NodeName}
			},
			Fields:  []string{"spec.nodeName"},
			Indexed: []string{"spec.nodeName"},
		},
	})
	create := func(name, app string) int64 {
		t.Helper()
		p := pod("default", name, "n1")
		p.Labels = map[string]string{"app": app}
		value, err := resource.EncodeStored(broken, p)
		if err != nil {
			t.Fatal(err)
		}
		revision, err := s.Create(t.Context(), "/registry/pods/default/"+name, value, 0)
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	const objects = 10
	for i := range objects {
		create(fmt.Sprintf("good-%d", i), "good")
	}
	create("before", "broken")
	cache := watchcache.New(s, []*resource.Resource{broken})
	g := supervise.NewGroup(supervise.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	g.Go(ctx, "apiserver", cache.Run)
	defer g.Wait()
	defer cancel()
	<-cache.Synced()
	create("after", "broken")
	if err := cache.WaitFor(ctx, create("last", "good")); err != nil {
		t.Fatal(err)
	}
	kind := cache.Kind(broken)
	for _, name := range []string{"before", "after"} {
		if _, ok := kind.Get("default", name); ok {
			t.Errorf("%s is in the cache", name)
		}
	}
	for _, name := range []string{"good-0", "good-9", "last"} {
		if _, ok := kind.Get("default", name); !ok {
			t.Errorf("%s is not in the cache", name)
		}
	}
	if got := kind.Stats().Undecodable; got != 2 {
		t.Errorf("%d objects are counted as hidden, want 2", got)
	}
	status, _ := g.Status()
	if c := status.Components[0]; c.Panics != 2 || c.Restarts != 0 {
		t.Errorf("got %+v", c)
	}
}
