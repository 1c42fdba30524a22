package etcd_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/coracle-io/coracle/internal/store/etcd"
)

// BenchmarkStart measures a start with an empty directory until the first answer.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		e, err := etcd.Embed(context.Background(), etcd.Config{Dir: shortDir(b)})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.CurrentRevision(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := e.Run(ctx); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkCreate measures durable writes of 1 kB by concurrent callers.
func BenchmarkCreate(b *testing.B) {
	value := make([]byte, 1000)
	for _, callers := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			e := embedded(b, etcd.Config{Dir: shortDir(b)})
			var n atomic.Int64
			b.SetParallelism(callers/2 + callers%2)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if _, err := e.Create(b.Context(), fmt.Sprintf("/registry/pods/default/%d", n.Add(1)), value, 0); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkCurrentRevision measures a linearizable read.
func BenchmarkCurrentRevision(b *testing.B) {
	e := embedded(b, etcd.Config{Dir: shortDir(b)})
	for b.Loop() {
		if _, err := e.CurrentRevision(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
