package clientgo

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// queries records the query strings of requests.
type queries struct {
	mu   sync.Mutex
	seen []string
}

func (q *queries) config() *rest.Config {
	config := rest.CopyConfig(restConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			q.mu.Lock()
			q.seen = append(q.seen, r.URL.Query().Encode())
			q.mu.Unlock()
			return next.RoundTrip(r)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestInformerWatchList fills an informer by a watch that begins with the
// existing objects (KEP-3157), without a list.
func TestInformerWatchList(t *testing.T) {
	if !features.FeatureGates().Enabled(features.WatchListClient) {
		t.Fatal("client-go's WatchListClient is off")
	}
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	for _, name := range []string{"a", "b"} {
		_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, configMap(name, nil), metav1.CreateOptions{})
		must(t, err)
	}
	var asked queries
	factory := informers.NewSharedInformerFactoryWithOptions(newClientFor(t, asked.config()), 0, informers.WithNamespace(ns))
	lister := factory.Core().V1().ConfigMaps().Lister()
	startAndSync(t, factory)
	for _, name := range []string{"a", "b"} {
		if _, err := lister.ConfigMaps(ns).Get(name); err != nil {
			t.Errorf("after the informer is in sync: %v", err)
		}
	}
	asked.mu.Lock()
	seen := append([]string{}, asked.seen...)
	asked.mu.Unlock()
	want := "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"
	if len(seen) != 1 || len(seen[0]) < len(want) || seen[0][:len(want)] != want {
		t.Errorf("the informer sent %q, want one request with %s", seen, want)
	}

	must(t, c.CoreV1().ConfigMaps(ns).Delete(ctx, "a", metav1.DeleteOptions{}))
	_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, configMap("c", nil), metav1.CreateOptions{})
	must(t, err)
	eventually(t, "the informer delivers the events", func(context.Context) error {
		_, errA := lister.ConfigMaps(ns).Get("a")
		_, errC := lister.ConfigMaps(ns).Get("c")
		if errA == nil || errC != nil {
			return fmt.Errorf("a: %w, c: %w", errA, errC)
		}
		return nil
	})
}

func startAndSync(t *testing.T, factory informers.SharedInformerFactory) {
	t.Helper()
	stop, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.StartWithContext(stop)
	ctx, done := context.WithTimeout(t.Context(), deadline)
	defer done()
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Fatalf("the informer of %v is not in sync after %v", kind, deadline)
		}
	}
}

// TestInformerHandlers checks that an informer with a selector delivers all
// events of an object in order, with its previous state.
func TestInformerHandlers(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(ns),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "kept=yes" }))
	events := make(chan string, 10)
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			events <- fmt.Sprint("add ", obj.(*corev1.ConfigMap).Data["k"], " ", initial)
		},
		UpdateFunc: func(old, now any) {
			events <- fmt.Sprint("update ", old.(*corev1.ConfigMap).Data["k"], " ", now.(*corev1.ConfigMap).Data["k"])
		},
		DeleteFunc: func(obj any) { events <- fmt.Sprint("delete ", obj.(*corev1.ConfigMap).Data["k"]) },
	})
	must(t, err)
	startAndSync(t, factory)

	cm := configMap("a", map[string]string{"k": "1"})
	cm.Labels = map[string]string{"kept": "yes"}
	cm, err = c.CoreV1().ConfigMaps(ns).Create(ctx, cm, metav1.CreateOptions{})
	must(t, err)
	cm.Data["k"] = "2"
	cm, err = c.CoreV1().ConfigMaps(ns).Update(ctx, cm, metav1.UpdateOptions{})
	must(t, err)
	cm.Labels, cm.Data["k"] = nil, "3"
	_, err = c.CoreV1().ConfigMaps(ns).Update(ctx, cm, metav1.UpdateOptions{})
	must(t, err)
	// An object that no longer matches the selector is deleted, with its last
	// matching state.
	for _, want := range []string{"add 1 false", "update 1 2", "delete 2"} {
		if got := <-events; got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
}

func TestDynamicAndMetadataInformers(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	_, err := c.AppsV1().Deployments(ns).Create(ctx, deployment("web", 0), metav1.CreateOptions{})
	must(t, err)
	d, err := dynamic.NewForConfig(restConfig)
	must(t, err)
	m, err := metadata.NewForConfig(restConfig)
	must(t, err)
	objects := dynamicinformer.NewFilteredDynamicSharedInformerFactory(d, 0, ns, nil)
	partial := metadatainformer.NewFilteredSharedInformerFactory(m, 0, ns, nil)
	listers := []cache.GenericLister{objects.ForResource(deployments).Lister(), partial.ForResource(deployments).Lister()}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); objects.Shutdown(); partial.Shutdown() })
	objects.Start(stop)
	partial.Start(stop)
	for i, lister := range listers {
		eventually(t, "the informer has the Deployment", func(context.Context) error {
			found, err := lister.ByNamespace(ns).List(labels.Everything())
			if err != nil || len(found) != 1 {
				return fmt.Errorf("informer %d has %d objects: %w", i, len(found), err)
			}
			return nil
		})
	}
}
