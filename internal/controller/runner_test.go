package controller_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
)

// provider returns one fake client and records the requested users.
type provider struct {
	client    *client.Client
	informers *client.Informers
	mu        sync.Mutex
	users     []string
}

func (p *provider) WithTransport(func(http.RoundTripper) http.RoundTripper) (client.Provider, error) {
	return p, nil
}

func (p *provider) As(user string, _ ...string) (*client.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users = append(p.users, user)
	return p.client, nil
}

func (p *provider) Run(ctx context.Context) error { return p.informers.Run(ctx) }

func fakeProvider() (*provider, *client.Informers) {
	kube := fake.NewSimpleClientset(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	factory := client.NewInformers(kube)
	return &provider{client: &client.Client{Kubernetes: kube, Informers: factory}, informers: factory}, factory
}

// A controller that fails, panics or returns is restarted with back-off. The
// others keep running.
func TestRunnerRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := fakeProvider()
		var starts []time.Duration
		begin := time.Now()
		steady := 0
		runner := controller.Runner{
			Provider: p, Enabled: []string{"*"},
			Controllers: []controller.Descriptor{
				{Name: "fails", ServiceAccount: "one", New: func(*controller.Env) (controller.Controller, error) {
					starts = append(starts, time.Since(begin))
					switch len(starts) {
					case 1:
						return nil, errors.New("cannot be built")
					case 2:
						return controller.Func(func(context.Context) error { panic("at once") }), nil
					case 3:
						return controller.Func(func(context.Context) error { return nil }), nil
					}
					return controller.Func(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
				}},
				{Name: "steady", ServiceAccount: "two", New: func(*controller.Env) (controller.Controller, error) {
					steady++
					return controller.Func(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
				}},
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- runner.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(starts) != 4 || starts[1] != 50*time.Millisecond || starts[2] != 150*time.Millisecond || starts[3] != 350*time.Millisecond {
			t.Errorf("started at %v", starts)
		}
		if steady != 1 {
			t.Errorf("the steady controller was started %d times", steady)
		}
		if got := strings.Join(p.users, " "); got != "system:serviceaccount:kube-system:one system:serviceaccount:kube-system:two" {
			t.Errorf("identities: %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The metric of running controllers follows them, also when the lease of the leader
// is lost and won again.
func TestRunningControllersAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := fakeProvider()
		registry := prometheus.NewRegistry()
		runner := controller.Runner{
			Provider: p, Enabled: []string{"*"}, Metrics: registry,
			Controllers: []controller.Descriptor{
				{Name: "fails", New: func(*controller.Env) (controller.Controller, error) { return nil, errors.New("cannot be built") }},
				{Name: "steady", New: func(*controller.Env) (controller.Controller, error) {
					return controller.Func(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
				}},
			},
		}
		shown := func(steady string) {
			t.Helper()
			want := `
# HELP running_managed_controllers [BETA] Indicates where instances of a controller are currently running
# TYPE running_managed_controllers gauge
running_managed_controllers{manager="kube-controller-manager",name="fails"} 0
running_managed_controllers{manager="kube-controller-manager",name="steady"} ` + steady + "\n"
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- runner.Run(ctx) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			shown("1")
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			shown("0")
		}
	})
}

// Serve removes its handlers: a restarted controller gets every object again,
// and no event twice.
func TestServeCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, factory := fakeProvider()
		process, stop := context.WithCancel(t.Context())
		running := make(chan error, 1)
		go func() { running <- p.Run(process) }()
		informer := factory.Core().V1().ConfigMaps().Informer()
		for range 2 {
			ctx, cancel := context.WithCancel(process)
			seen := 0
			var queue *controller.Queue[controller.Key]
			synced := map[controller.Key]int{}
			queue = controller.NewQueue(nil, "test", func(_ context.Context, key controller.Key) error {
				if synced[key]++; synced[key] == 1 {
					panic("the first time")
				}
				return nil
			})
			done := make(chan error, 1)
			go func() {
				done <- controller.Serve(ctx, []controller.Source{
					controller.On(informer, func(_, new *v1.ConfigMap) {
						seen++
						queue.Add(cache.MetaObjectToName(new))
					}),
				}, queue.Workers(2))
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			if seen != 1 || synced[controller.Key{Namespace: "default", Name: "a"}] != 2 {
				t.Errorf("%d events, syncs %v", seen, synced)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		stop()
		if err := <-running; err != nil {
			t.Error(err)
		}
	})
}

// A panic in a handler ends the controller, not the process.
func TestHandlerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, factory := fakeProvider()
		process, stop := context.WithCancel(t.Context())
		running := make(chan error, 1)
		go func() { running <- p.Run(process) }()
		err := controller.Serve(process, []controller.Source{
			controller.On(factory.Core().V1().ConfigMaps().Informer(), func(_, _ *v1.ConfigMap) { panic("oh") }),
		}, func(ctx context.Context) error { <-ctx.Done(); return nil })
		if err == nil || !strings.Contains(err.Error(), "panic: oh") {
			t.Errorf("got %v", err)
		}
		stop()
		if err := <-running; err != nil {
			t.Error(err)
		}
	})
}
