package object

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientfake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/client"
)

// storeTest is a Store with an API server in memory.
type storeTest struct {
	*Store
	t      *testing.T
	api    *clientfake.Clientset
	gets   atomic.Int32
	away   atomic.Bool
	opened []string // watches, as resource/namespace/name
	lists  atomic.Int32
	short  error         // of memory
	held   chan struct{} // lists of secrets wait until it is closed; nil: they do not

	mu      sync.Mutex // guards changed
	changed []types.UID
}

// watch makes informers that filter by name as the API server does.
func (s *storeTest) watch(gvr schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
	name, _ := selector.RequiresExactMatch("metadata.name")
	s.opened = append(s.opened, gvr.Resource+"/"+namespace+"/"+name)
	lw := &cache.ListWatch{}
	var kind runtime.Object
	switch gvr.Resource {
	case "secrets":
		kind = &v1.Secret{}
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			s.lists.Add(1)
			if s.held != nil {
				<-s.held
			}
			list, err := s.api.CoreV1().Secrets(namespace).List(ctx, o)
			if err == nil {
				list.Items = slices.DeleteFunc(list.Items, func(o v1.Secret) bool { return o.Name != name })
			}
			return list, err
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := s.api.CoreV1().Secrets(namespace).Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return drained{watch.Filter(w, func(e watch.Event) (watch.Event, bool) { return e, e.Object.(*v1.Secret).Name == name })}, nil
		}
	case "clustertrustbundles":
		kind = &certificatesv1.ClusterTrustBundle{}
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return s.api.CertificatesV1().ClusterTrustBundles().List(ctx, o)
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.api.CertificatesV1().ClusterTrustBundles().Watch(ctx, o)
		}
	default:
		kind = &v1.ConfigMap{}
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return s.api.CoreV1().ConfigMaps(namespace).List(ctx, o)
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return s.api.CoreV1().ConfigMaps(namespace).Watch(ctx, o)
		}
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, s.api), kind, 0, cache.Indexers{})
}

// drained is a filtered watch whose goroutine ends with Stop, also while it
// sends an event.
type drained struct{ watch.Interface }

func (d drained) Stop() {
	d.Interface.Stop()
	for range d.ResultChan() {
	}
}

// run calls f with a Store that has been started, in a bubble of virtual time.
func run(t *testing.T, watches bool, f func(t *testing.T, s *storeTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &storeTest{t: t, api: clientfake.NewSimpleClientset()}
		s.api.PrependReactor("*", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
			if a.GetVerb() == "get" {
				s.gets.Add(1)
			}
			if s.away.Load() {
				return true, nil, errors.New("connection refused")
			}
			return false, nil, nil
		})
		s.Store = New(&client.Client{Kubernetes: s.api, Watch: s.watch}, watches, Memory{Limit: math.MaxInt64, Shortage: func() error { return s.short }}, func(uid types.UID) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed = append(s.changed, uid)
		})
		ctx, cancel := context.WithCancel(t.Context())
		s.Start(ctx)
		f(t, s)
		cancel()
		synctest.Wait()
	})
}

func (s *storeTest) put(name, version, value string) {
	s.t.Helper()
	o := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: version}, Data: map[string][]byte{"k": []byte(value)}}
	api := s.api.CoreV1().Secrets("default")
	_, err := api.Update(s.t.Context(), o, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(s.t.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

func (s *storeTest) register(uid types.UID, secrets ...string) {
	s.registerIn("default", uid, secrets...)
}

func (s *storeTest) registerIn(namespace string, uid types.UID, secrets ...string) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: uid}}
	for _, name := range secrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
	}
	s.Register(p)
	synctest.Wait()
}

// want checks which pods were reported as changed since the last call.
func (s *storeTest) want(what string, uids ...types.UID) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.changed)
	if !slices.Equal(s.changed, uids) {
		s.t.Errorf("%s: changed %q, want %q", what, s.changed, uids)
	}
	s.changed = nil
}

func TestChangesReachReferringPods(t *testing.T) {
	run(t, true, func(_ *testing.T, s *storeTest) {
		s.put("shared", "1", "old")
		s.register("one", "shared", "late")
		s.register("two", "shared")
		s.want("existing objects")
		s.put("shared", "2", "new")
		s.want("an update", "one", "two")
		s.put("shared", "2", "new")
		s.want("an update without a new version")
		s.put("late", "3", "x")
		s.want("an object that is created", "one")
		s.put("foreign", "4", "x")
		s.want("an object that no pod refers to")
		if err := s.api.CoreV1().Secrets("default").Delete(s.t.Context(), "late", metav1.DeleteOptions{}); err != nil {
			s.t.Fatal(err)
		}
		s.want("an object that is deleted", "one")
		s.register("one")
		s.Forget("two")
		s.put("shared", "5", "newer")
		s.want("an update after no pod refers to the object")
	})
}

// Watches are shared by pods, and end with the last pod.
func TestWatchesAreShared(t *testing.T) {
	run(t, true, func(t *testing.T, s *storeTest) {
		for range 3 {
			s.register("one", "a", "b")
			s.register("two", "a")
		}
		slices.Sort(s.opened)
		if want := []string{"secrets/default/a", "secrets/default/b"}; !slices.Equal(s.opened, want) {
			t.Errorf("watches %q, want %q", s.opened, want)
		}
		s.Forget("one")
		if len(s.entries) != 1 || len(s.pods) != 1 {
			t.Errorf("after one pod was forgotten: %d watches of %d pods", len(s.entries), len(s.pods))
		}
		s.Forget("two")
		s.Forget("unknown")
		if len(s.entries) != 0 || len(s.pods) != 0 {
			t.Errorf("after all pods were forgotten: %d watches of %d pods", len(s.entries), len(s.pods))
		}
	})
}

// A watched object is read without the API server, even if the server is down.
// An object that the watch does not have is requested, because it may be newer
// than the watch.
func TestReads(t *testing.T) {
	run(t, true, func(t *testing.T, s *storeTest) {
		s.put("a", "1", "value")
		if _, err := s.Secret(t.Context(), "default", "a"); err != nil || s.gets.Load() != 1 {
			t.Errorf("without a watch: %v after %d requests", err, s.gets.Load())
		}
		s.register("one", "a", "missing")
		s.gets.Store(0)
		if _, err := s.Secret(t.Context(), "default", "missing"); !apierrors.IsNotFound(err) || !strings.HasPrefix(err.Error(), `secret "missing" not found`) || s.gets.Load() != 1 {
			t.Errorf("a missing object: %v after %d requests", err, s.gets.Load())
		}
		s.away.Store(true)
		s.gets.Store(0)
		got, err := s.Secret(t.Context(), "default", "a")
		if err != nil || string(got.Data["k"]) != "value" || s.gets.Load() != 0 {
			t.Errorf("a watched object while the server is down: %v, %v after %d requests", got, err, s.gets.Load())
		}
		if _, err := s.ConfigMap(t.Context(), "default", "c"); err == nil || apierrors.IsNotFound(err) {
			t.Errorf("an object that is not watched while the server is down: %v", err)
		}
	})
	run(t, false, func(t *testing.T, s *storeTest) {
		s.put("a", "1", "old")
		s.register("one", "a")
		s.put("a", "2", "new")
		s.want("an update without watches")
		if got, err := s.Secret(t.Context(), "default", "a"); err != nil || string(got.Data["k"]) != "new" || len(s.opened) != 0 {
			t.Errorf("%v, %v, watches %q", got, err, s.opened)
		}
	})
}

// All bundles are one watch, however many pods select some of them.
func TestTrustBundles(t *testing.T) {
	run(t, true, func(t *testing.T, s *storeTest) {
		for _, uid := range []types.UID{"one", "two"} {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: uid}}
			p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "ca"}}}}}}}
			s.Register(p)
		}
		synctest.Wait()
		b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "b", ResourceVersion: "1"}}
		if _, err := s.api.CertificatesV1().ClusterTrustBundles().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.want("a new bundle", "one", "two")
		s.away.Store(true)
		if got, err := s.Store.TrustBundles(t.Context()); err != nil || len(got) != 1 || len(s.opened) != 1 {
			t.Errorf("bundles %v, %v, watches %q", got, err, s.opened)
		}
	})
}
