package client

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
)

// All ways to request an informer return the same one, which is run once.
func TestInformerRunsOnce(t *testing.T) {
	var again atomic.Bool
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "run more than once") {
			again.Store(true)
		}
	}, funcr.Options{})
	f := NewInformers(fake.NewClientset())
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), log))
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	f.Core().V1().Pods().Informer()
	f.WaitForCacheSyncWithContext(ctx)
	if _, err := f.ForResource(v1.SchemeGroupVersion.WithResource("pods")); err != nil {
		t.Fatal(err)
	}
	f.Core().V1().Pods().Informer()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if again.Load() {
		t.Error("it was run again")
	}
}
