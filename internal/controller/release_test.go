package controller_test

import (
	"context"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
)

// A controller that ends while it waits for its informers leaks no goroutine of
// its queues; otherwise the synctest bubble would not end.
func TestServeCanceledBeforeSyncDoesNotLeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.Pod{}, 0, nil)
		queue := controller.NewQueue(nil, "early", func(context.Context, controller.Key) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- controller.Serve(ctx, []controller.Source{controller.Reads(never)}, queue.Workers(2))
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
