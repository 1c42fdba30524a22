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

// subscriber is a component that subscribes to pods.
type subscriber struct {
	added chan string
	stop  context.CancelFunc
	ended chan error
}

func (c *cluster) subscribe(handle func(name string)) *subscriber {
	c.Helper()
	factory := c.as("system:kube-scheduler").Informers
	ctx, cancel := context.WithCancel(c.ctx)
	f := &subscriber{added: make(chan string, 100), stop: cancel, ended: make(chan error, 1)}
	started := make(chan struct{})
	go func() {
		f.ended <- supervise.Run(ctx, func(ctx context.Context) error {
			synced, err := client.Subscribe(ctx, factory.Core().V1().Pods().Informer(), cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
				name, _ := cache.MetaNamespaceKeyFunc(obj)
				handle(name)
				f.added <- name
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

// A component that ends, or whose handler panics, does not affect other subscribers. When it
// subscribes again, it gets all objects.
func TestSubscribersAreIndependent(t *testing.T) {
	c := newCluster(t, http.NotFoundHandler())
	pods := c.kind("", "pods")
	c.create(pods, pod("a", ""))
	steady := c.subscribe(func(string) {})
	expect(t, steady.added, "default/a")
	for _, name := range []string{"b", "c", "d"} {
		first := c.subscribe(func(string) {})
		<-first.added // the first of the existing objects, in any order
		first.stop()
		if err := <-first.ended; err != nil {
			t.Error(err)
		}
		c.create(pods, pod(name, ""))
		expect(t, steady.added, "default/"+name)
		select {
		case got := <-first.added:
			if got == "default/"+name {
				t.Error("the handler of a component that has ended was called")
			}
		default:
		}
	}
	broken := errors.New("broken")
	panics := c.subscribe(func(string) { panic(broken) })
	if err := <-panics.ended; !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	c.create(pods, pod("e", ""))
	expect(t, steady.added, "default/e")
	again := c.subscribe(func(string) {})
	seen := map[string]bool{}
	for range 5 {
		seen[<-again.added] = true
	}
	if len(seen) != 5 {
		t.Errorf("got %v", seen)
	}
	for _, f := range []*subscriber{steady, again} {
		f.stop()
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
	}
}

// A panic of an index function affects neither the informer nor other subscribers.
func TestPanicInIndexFunction(t *testing.T) {
	c := newCluster(t, http.NotFoundHandler())
	informer := c.as("test").Informers.Core().V1().Pods().Informer()
	for range 2 {
		if err := client.Index(t.Context(), informer, "broken", func(any) ([]string, error) { panic("broken") }); err != nil {
			t.Fatal(err)
		}
	}
	steady := c.subscribe(func(string) {})
	c.create(c.kind("", "pods"), pod("a", ""))
	expect(t, steady.added, "default/a")
	steady.stop()
	if err := <-steady.ended; err != nil {
		t.Error(err)
	}
}
