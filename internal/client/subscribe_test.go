package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"

	"k8s.io/client-go/tools/cache"
)

// follower is a component that hears of pods.
type follower struct {
	heard chan string
	stop  context.CancelFunc
	ended chan error
}

func (c *cluster) follow(handle func(name string)) *follower {
	c.Helper()
	factory := c.as("system:kube-scheduler").Informers
	ctx, cancel := context.WithCancel(c.ctx)
	f := &follower{heard: make(chan string, 100), stop: cancel, ended: make(chan error, 1)}
	started := make(chan struct{})
	go func() {
		f.ended <- supervise.Run(ctx, func(ctx context.Context) error {
			synced, err := client.Subscribe(ctx, factory.Core().V1().Pods().Informer(), cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
				name, _ := cache.MetaNamespaceKeyFunc(obj)
				handle(name)
				f.heard <- name
			}})
			close(started)
			if err != nil {
				return err
			}
			cache.WaitFor(ctx, "", synced)
			<-ctx.Done()
			return nil
		})
	}()
	<-started
	return f
}

// The informers are the provider's: whoever ends, whether asked to or by a
// panic in a handler, leaves them to the others, and hears everything from the
// beginning when it comes back.
func TestOneSubscriberEndsAndTheOthersGoOn(t *testing.T) {
	c := newCluster(t, http.NotFoundHandler())
	pods := c.kind("", "pods")
	c.create(pods, pod("a", ""))
	steady := c.follow(func(string) {})
	expect(t, steady.heard, "default/a")
	for _, name := range []string{"b", "c", "d"} {
		first := c.follow(func(string) {})
		<-first.heard // of what is there one comes first, in no order
		first.stop()
		if err := <-first.ended; err != nil {
			t.Error(err)
		}
		c.create(pods, pod(name, ""))
		expect(t, steady.heard, "default/"+name)
		select {
		case told := <-first.heard:
			if told == "default/"+name {
				t.Error("a component that has ended still hears")
			}
		default:
		}
	}
	broken := errors.New("broken")
	panics := c.follow(func(string) { panic(broken) })
	if err := <-panics.ended; !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	c.create(pods, pod("e", ""))
	expect(t, steady.heard, "default/e")
	again := c.follow(func(string) {})
	seen := map[string]bool{}
	for range 5 {
		seen[<-again.heard] = true
	}
	if len(seen) != 5 {
		t.Errorf("heard %v", seen)
	}
	for _, f := range []*follower{steady, again} {
		f.stop()
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
	}
}

// A panic of one user's index function harms neither the informer nor others.
func TestAnIndexThatPanicsHarmsNobody(t *testing.T) {
	c := newCluster(t, http.NotFoundHandler())
	informer := c.as("test").Informers.Core().V1().Pods().Informer()
	for range 2 {
		if err := client.Index(t.Context(), informer, "broken", func(any) ([]string, error) { panic("broken") }); err != nil {
			t.Fatal(err)
		}
	}
	steady := c.follow(func(string) {})
	c.create(c.kind("", "pods"), pod("a", ""))
	expect(t, steady.heard, "default/a")
	steady.stop()
	if err := <-steady.ended; err != nil {
		t.Error(err)
	}
}
