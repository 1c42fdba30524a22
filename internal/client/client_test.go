package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/store/mem"
	"github.com/coracle-io/coracle/internal/watchcache"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// cluster is a watch cache and a provider over it.
type cluster struct {
	*testing.T
	cache    *watchcache.Cache
	provider *client.InProcess
	ctx      context.Context
}

func newCluster(t *testing.T, handler http.Handler) *cluster {
	t.Helper()
	c := watchcache.New(mem.New(), all.All())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	p, err := client.NewInProcess(handler, c, request.WithUser)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	<-c.Synced()
	return &cluster{T: t, cache: c, provider: p, ctx: ctx}
}

func (c *cluster) as(user string) *client.Client {
	c.Helper()
	made, err := c.provider.As(user)
	if err != nil {
		c.Fatal(err)
	}
	return made
}

// kind returns the cache of a resource.
func (c *cluster) kind(group, plural string) *watchcache.Kind {
	for _, k := range c.cache.Kinds() {
		if r := k.Resource(); r.Group == group && r.Plural == plural {
			return k
		}
	}
	c.Fatalf("no %s.%s", plural, group)
	return nil
}

func (c *cluster) create(k *watchcache.Kind, obj resource.Object) *watchcache.Entry {
	c.Helper()
	e, err := k.Create(c.ctx, obj)
	if err != nil {
		c.Fatal(err)
	}
	return e
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

// record returns the events of an informer.
func record(t *testing.T, informer cache.SharedIndexInformer) <-chan string {
	t.Helper()
	seen := make(chan string, 100)
	send := func(verb string, obj any) {
		key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		seen <- verb + " " + key
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { send("add", obj) },
		UpdateFunc: func(_, obj any) { send("update", obj) },
		DeleteFunc: func(obj any) { send("delete", obj) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func expect(t *testing.T, seen <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-seen:
			if got != w {
				t.Errorf("handler saw %q, want %q", got, w)
			}
		case <-time.After(time.Minute):
			t.Fatalf("handler did not see %q", w)
		}
	}
}

func TestInformersShareObjectsOfCache(t *testing.T) {
	c := newCluster(t, http.NotFoundHandler())
	pods := c.kind("", "pods")
	first := c.create(pods, pod("a", ""))
	if err := c.cache.WaitFor(t.Context(), first.Revision); err != nil {
		t.Fatal(err)
	}
	factory := c.as("system:kube-scheduler").Informers
	informer := factory.Core().V1().Pods()
	seen := record(t, informer.Informer())
	if missing := factory.WaitForCacheSync(t.Context().Done()); len(missing) != 1 {
		t.Errorf("waited for %v", missing)
	}
	updated, err := pods.Update(t.Context(), pod("a", "n1"), first)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, seen, "add default/a", "update default/a")
	got, err := informer.Lister().Pods("default").Get("a")
	if err != nil || got != updated.Object {
		t.Errorf("the informer holds a copy: %v", err)
	}
	if other := c.as("system:kube-controller-manager").Informers.Core().V1().Pods().Informer(); other.GetStore() != informer.Informer().GetStore() {
		t.Error("two clients have two informers")
	}
	generic, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil || generic.Informer().GetStore() != informer.Informer().GetStore() {
		t.Errorf("another informer by resource: %v", err)
	}
}

func TestInformerOfAnotherVersion(t *testing.T) {
	c := newCluster(t, http.NotFoundHandler())
	autoscalers := c.kind("autoscaling", "horizontalpodautoscalers")
	c.create(autoscalers, &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 7},
	})
	factory := c.as("test").Informers
	informer := factory.Autoscaling().V1().HorizontalPodAutoscalers()
	seen := record(t, informer.Informer())
	expect(t, seen, "add default/a")
	all, err := informer.Lister().List(labels.Everything())
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	v1 := all[0]
	if v1.Spec.MaxReplicas != 7 {
		t.Errorf("converted to %+v", v1.Spec)
	}
}

func TestWatchWithFieldSelector(t *testing.T) {
	c := newCluster(t, http.NotFoundHandler())
	pods := c.kind("", "pods")
	c.create(pods, pod("elsewhere", "n2"))
	on := c.create(pods, pod("on", "n1"))
	informer := c.as("system:node:n1").Watch(corev1.SchemeGroupVersion.WithResource("pods"), "", fields.OneTermEqualSelector("spec.nodeName", "n1"))
	seen := record(t, informer)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.Run(ctx.Done())
	}()
	defer func() { cancel(); <-done }()
	expect(t, seen, "add default/on")
	pending := c.create(pods, pod("pending", ""))
	bound, err := pods.Update(t.Context(), pod("pending", "n1"), pending)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, seen, "add default/pending")
	if _, err := pods.Update(t.Context(), pod("pending", "n2"), bound); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Delete(t.Context(), on, nil); err != nil {
		t.Fatal(err)
	}
	expect(t, seen, "delete default/pending", "delete default/on")
}

func TestRequestsHaveUser(t *testing.T) {
	var seen *http.Request
	c := newCluster(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"gone"}`)
	}))
	account := c.as("system:serviceaccount:kube-system:replicaset-controller")
	_, err := account.Kubernetes.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
	user, _ := request.UserFrom(seen.Context())
	if got, want := fmt.Sprint(user.GetName(), user.GetGroups()), "system:serviceaccount:kube-system:replicaset-controller[system:serviceaccounts system:serviceaccounts:kube-system system:authenticated]"; got != want {
		t.Errorf("user %s, want %s", got, want)
	}
	if agent := seen.UserAgent(); !strings.HasPrefix(agent, "kube-controller-manager/") {
		t.Errorf("user agent %s", agent)
	}
	if seen.RequestURI != "/api/v1/namespaces/default/pods/a" {
		t.Errorf("request URI %s", seen.RequestURI)
	}
	if accept := seen.Header.Get("Accept"); !strings.HasPrefix(accept, "application/vnd.kubernetes.protobuf") {
		t.Errorf("accepts %s", accept)
	}
}

func TestResponsesStream(t *testing.T) {
	ended := make(chan error, 1)
	proceed := make(chan struct{})
	c := newCluster(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, "first")
		w.(http.Flusher).Flush()
		<-proceed
		_, _ = fmt.Fprint(w, "second")
		<-r.Context().Done()
		ended <- r.Context().Err()
	}))
	config := c.as("test").Config
	response, err := config.Transport.RoundTrip(httptest.NewRequest("GET", "http://x/api/v1/pods?watch=1", nil))
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 5)
	if _, err := io.ReadFull(response.Body, data); err != nil || string(data) != "first" {
		t.Fatalf("read %q, %v", data, err)
	}
	close(proceed)
	data = make([]byte, 6)
	if _, err := io.ReadFull(response.Body, data); err != nil || string(data) != "second" {
		t.Fatalf("read %q, %v", data, err)
	}
	_ = response.Body.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("handler ended with %v", err)
	}
}

func TestHandlerPanics(t *testing.T) {
	c := newCluster(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	_, err := c.as("test").Config.Transport.RoundTrip(httptest.NewRequest("GET", "http://x/", nil)) //nolint:bodyclose // there is no response
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}
