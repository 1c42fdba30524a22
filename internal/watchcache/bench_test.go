package watchcache_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// workload returns a pod of typical size.
func workload(name, node string) *corev1.Pod {
	p := pod("default", name, node)
	p.UID = "7d3f1e3c-5b0c-4f6e-9d7e-1a2b3c4d5e6f"
	p.Labels = map[string]string{"app": "web", "tier": "frontend", "pod-template-hash": "5d4f8c7b9"}
	for i := range 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name:  fmt.Sprintf("container-%d", i),
			Image: "registry.example.com/web/frontend:v1.2.3",
			Env:   []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
		})
	}
	return p
}

// withPods runs a cache until the end of the benchmark and creates n pods in it.
func withPods(b *testing.B, s store.Store, n int) (*watchcache.Cache, *watchcache.Kind) {
	b.Helper()
	c, stop := start(s, pods)
	b.Cleanup(stop)
	k := c.Kind(pods)
	for i := range n {
		if _, err := k.Create(b.Context(), workload(fmt.Sprintf("pod-%05d", i), fmt.Sprintf("node-%d", i%100))); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := c.Fresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	return c, k
}

func BenchmarkGet(b *testing.B) {
	_, k := withPods(b, mem.New(), 5000)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := k.Get("default", "pod-02500"); !ok {
			b.Fatal("not found")
		}
	}
}

func BenchmarkSnapshotAscend5000(b *testing.B) {
	_, k := withPods(b, mem.New(), 5000)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		k.Snapshot().Ascend("default", watchcache.Position{}, func(*watchcache.Entry) bool { n++; return true })
		if n != 5000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkLookup50Of5000(b *testing.B) {
	_, k := withPods(b, mem.New(), 5000)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		k.Lookup("spec.nodeName", "node-7", func(*watchcache.Entry) bool { n++; return true })
		if n != 50 {
			b.Fatal(n)
		}
	}
}

// BenchmarkUpdateUnderSnapshots measures the worst case of copy-on-write: a
// snapshot is taken after each write.
func BenchmarkUpdateUnderSnapshots(b *testing.B) {
	c, k := withPods(b, mem.New(), 5000)
	e, _ := k.Get("default", "pod-02500")
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if e, err = k.Update(b.Context(), workload("pod-02500", "node-1"), e); err != nil {
			b.Fatal(err)
		}
		if err := c.WaitFor(b.Context(), e.Revision); err != nil {
			b.Fatal(err)
		}
		_ = k.Snapshot()
	}
}

// BenchmarkFanOut measures the delivery of one event to all cursors.
func BenchmarkFanOut(b *testing.B) {
	for _, watchers := range []int{50, 5000} {
		b.Run(fmt.Sprint(watchers), func(b *testing.B) { fanOut(b, watchers, watchcache.Scope{}) })
	}
}

// BenchmarkFanOutScoped measures an event that is in the scope of one of 5,000
// cursors.
func BenchmarkFanOutScoped(b *testing.B) {
	fanOut(b, 5000, watchcache.Scope{Field: "spec.nodeName"})
}

func fanOut(b *testing.B, watchers int, scope watchcache.Scope) {
	c, k := withPods(b, mem.New(), 1)
	e, _ := k.Get("default", "pod-00000")
	ctx, cancel := context.WithCancel(b.Context())
	var wg, delivered sync.WaitGroup
	for i := range watchers {
		if scope.Field != "" {
			scope.Value = fmt.Sprintf("node-%d", i)
		}
		cursor, err := k.WatchScope(c.Revision(), scope)
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			for {
				events, _, err := cursor.Next(ctx, nil)
				if err != nil {
					return
				}
				for range events {
					delivered.Done()
				}
			}
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		if scope.Field != "" {
			delivered.Add(1)
		} else {
			delivered.Add(watchers)
		}
		var err error
		if e, err = k.Update(ctx, workload("pod-00000", "node-0"), e); err != nil {
			b.Fatal(err)
		}
		delivered.Wait()
	}
	cancel()
	wg.Wait()
}

// BenchmarkCreate creates pods concurrently and waits until the cache contains
// all of them.
func BenchmarkCreate(b *testing.B) {
	b.Run("mem", func(b *testing.B) { create(b, mem.New()) })
	b.Run("etcd", func(b *testing.B) {
		dir, err := os.MkdirTemp("", "etcd")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		s, err := etcd.Embed(context.Background(), etcd.Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Run(ctx) })
		create(b, s)
		cancel()
		wg.Wait()
	})
}

func create(b *testing.B, s store.Store) {
	c, stop := start(s, pods)
	defer stop()
	k := c.Kind(pods)
	var n atomic.Int64
	b.SetParallelism(16)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := k.Create(b.Context(), workload(fmt.Sprintf("pod-%d", n.Add(1)), "")); err != nil {
				b.Error(err)
				return
			}
		}
	})
	if _, err := c.Fresh(b.Context()); err != nil {
		b.Error(err)
	}
}
