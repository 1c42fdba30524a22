package client_test

import (
	"net/http"
	"runtime"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// BenchmarkAs measures the cost of a client and the memory that it keeps.
func BenchmarkAs(b *testing.B) {
	p, err := client.NewInProcess(http.NotFoundHandler(), watchcache.New(mem.New(), all.All()), apirequest.WithUser)
	if err != nil {
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var clients []*client.Client
	for b.Loop() {
		c, err := p.As("system:serviceaccount:kube-system:job-controller")
		if err != nil {
			b.Fatal(err)
		}
		clients = append(clients, c)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(clients)), "B-kept/op")
}
