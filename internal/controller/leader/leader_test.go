package leader_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/controller/leader"
)

// worker records whether an instance is active.
type worker struct{ working atomic.Bool }

// Of two instances, the second becomes active only after the first has returned.
func TestOnlyOneInstanceIsActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewSimpleClientset()
		var first, second worker
		start := func(ctx context.Context, name string, w *worker) <-chan error {
			o := leader.Options{Configuration: leader.DefaultConfiguration("kube-controller-manager")}
			o.Identity = name
			ended := make(chan error, 1)
			go func() {
				ended <- leader.Run(ctx, o, kube, func(ctx context.Context) error {
					w.working.Store(true)
					<-ctx.Done()
					time.Sleep(time.Second) // work may take a while to stop
					w.working.Store(false)
					return nil
				})
			}()
			return ended
		}
		firstContext, stopFirst := context.WithCancel(t.Context())
		secondContext, stopSecond := context.WithCancel(t.Context())
		firstEnded := start(firstContext, "first", &first)
		synctest.Wait()
		secondEnded := start(secondContext, "second", &second)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !first.working.Load() || second.working.Load() {
			t.Fatal("after a minute only the first instance should be active")
		}
		stopFirst()
		time.Sleep(500 * time.Millisecond)
		if second.working.Load() {
			t.Fatal("the second instance is active while the first is still stopping")
		}
		if err := <-firstEnded; err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if !second.working.Load() {
			t.Fatal("the lease was released, but the second instance is not active")
		}
		stopSecond()
		if err := <-secondEnded; err != nil || second.working.Load() {
			t.Fatal(err, "or the second instance is still active")
		}
	})
}

func TestCanceledWhileWaitingForLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewSimpleClientset()
		o := leader.Options{Configuration: leader.DefaultConfiguration("kube-scheduler")}
		o.Identity = "holder"
		holding, release := context.WithCancel(t.Context())
		held := make(chan error, 1)
		go func() {
			held <- leader.Run(holding, o, kube, func(ctx context.Context) error { <-ctx.Done(); return nil })
		}()
		synctest.Wait()
		o.Identity = "waiter"
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() {
			waited <- leader.Run(ctx, o, kube, func(context.Context) error { return errors.New("must not work") })
		}()
		time.Sleep(time.Second)
		cancel()
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		release()
		if err := <-held; err != nil {
			t.Error(err)
		}
	})
}

func TestWorkFailureEndsRun(t *testing.T) {
	broken := errors.New("broken")
	err := leader.Run(t.Context(), leader.Options{Configuration: leader.DefaultConfiguration("x")}, fake.NewSimpleClientset(), func(context.Context) error { return broken })
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
}
