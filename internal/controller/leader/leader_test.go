package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/controller/leader"
)

// Two instances: the second works only when the first has returned.
func TestOneWorksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		working := map[string]bool{}
		start := func(ctx context.Context, name string) <-chan error {
			o := leader.DefaultOptions("kube-controller-manager")
			o.Identity = name
			ended := make(chan error, 1)
			go func() {
				ended <- leader.Run(ctx, o, kube, func(ctx context.Context) error {
					working[name] = true
					<-ctx.Done()
					time.Sleep(time.Second) // a task that takes a while to stop
					working[name] = false
					return nil
				})
			}()
			return ended
		}
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		firstEnded := start(first, "first")
		synctest.Wait()
		secondEnded := start(second, "second")
		time.Sleep(time.Minute)
		synctest.Wait()
		if !working["first"] || working["second"] {
			t.Fatalf("after a minute: %v", working)
		}
		stopFirst()
		time.Sleep(500 * time.Millisecond)
		if working["second"] {
			t.Fatal("the second works while the first is still stopping")
		}
		if err := <-firstEnded; err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if !working["second"] {
			t.Fatal("the lease was released, but the second did not take it")
		}
		stopSecond()
		if err := <-secondEnded; err != nil || working["second"] {
			t.Fatal(err, working)
		}
	})
}

func TestStopsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		o := leader.DefaultOptions("kube-scheduler")
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
		<-held
	})
}

func TestWorkFails(t *testing.T) {
	broken := errors.New("broken")
	err := leader.Run(t.Context(), leader.DefaultOptions("x"), fake.NewClientset(), func(context.Context) error { return broken })
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
}
