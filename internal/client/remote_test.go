package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/freeport"
)

// tokenServer issues tokens "token-1", "token-2", ... and records the tokens of requests.
// It rejects the revoked token.
type tokenServer struct {
	mu       sync.Mutex
	issued   int
	accounts int
	revoked  string
	seen     []string
}

func (s *tokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	encoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
	w.Header().Set("Content-Type", "application/json")
	status := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		_ = encoder.Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code)}, w)
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts"):
		s.accounts++
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"job-controller"}}`))
	case strings.HasSuffix(r.URL.Path, "/token") && s.accounts == 0:
		status(http.StatusNotFound, metav1.StatusReasonNotFound)
	case strings.HasSuffix(r.URL.Path, "/token"):
		s.issued++
		w.WriteHeader(http.StatusCreated)
		_ = encoder.Encode(&authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"},
			Status:   authenticationv1.TokenRequestStatus{Token: "token-" + string(rune('0'+s.issued)), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))},
		}, w)
	case token == s.revoked:
		status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	default:
		s.seen = append(s.seen, token)
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`))
	}
}

func TestRemoteServiceAccountTokens(t *testing.T) {
	s := &tokenServer{}
	listener := httptest.NewServer(s)
	defer listener.Close()
	defer listener.CloseClientConnections()
	provider, err := client.NewRemote(&rest.Config{Host: listener.URL, BearerToken: "own"})
	if err != nil {
		t.Fatal(err)
	}
	get := func(user string) error {
		c, err := provider.As(user)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Kubernetes.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
		return err
	}
	if err := get("system:kube-controller-manager"); err != nil {
		t.Error(err)
	}
	account, err := provider.As("system:serviceaccount:kube-system:job-controller")
	if err != nil {
		t.Fatal(err)
	}
	pods := account.Kubernetes.CoreV1().Pods("default")
	for range 2 {
		if _, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	s.mu.Lock()
	s.revoked = "token-1"
	s.mu.Unlock()
	if _, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); err == nil {
		t.Error("a revoked token was accepted")
	}
	if _, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, want := strings.Join(s.seen, " "), "own token-1 token-1 token-2"; got != want || s.accounts != 1 {
		t.Errorf("tokens %s, %d accounts made; want %s and one", got, s.accounts, want)
	}
	for _, name := range []string{"pods", "nodes", "endpoints", "services"} {
		if informer := account.Watch(schema.GroupVersionResource{Version: "v1", Resource: name}, "", nil); informer == nil {
			t.Errorf("no informer of %s", name)
		}
	}
}

// A request whose answer cannot arrive, because the address of the machine has changed, does
// not wait for it once the connections are closed. Later ones open others.
func TestConnectionsAreClosed(t *testing.T) {
	var requests atomic.Int32
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			close(arrived)
			<-r.Context().Done() // until the connection is closed
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`))
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	remote, err := client.NewRemote(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	provider, err := remote.WithTransport(func(rt http.RoundTripper) http.RoundTripper { return rt })
	if err != nil {
		t.Fatal(err)
	}
	c, err := provider.As("system:kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	get := func() error {
		_, err := c.Kubernetes.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
		return err
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = get() // it fails, or client-go tries again
	}()
	<-arrived
	remote.CloseConnections()
	select {
	case <-answered:
	case <-time.After(3 * time.Minute):
		t.Fatal("a request waits for its answer after its connection was closed")
	}
	if err := get(); err != nil {
		t.Errorf("by another connection: %v", err)
	}
}

// The last requests of a component do not wait for a server that refuses connections.
func TestStoppingComponentDoesNotWaitForServer(t *testing.T) {
	address := fmt.Sprintf("http://127.0.0.1:%d", freeport.For(t))
	root, err := client.NewRemote(&rest.Config{Host: address})
	if err != nil {
		t.Fatal(err)
	}
	provider, err := root.WithTransport(func(rt http.RoundTripper) http.RoundTripper { return rt })
	if err != nil {
		t.Fatal(err)
	}
	c, err := provider.As("system:kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- provider.Run(ctx) }()
	asked := make(chan error, 1)
	go func() {
		_, err := c.Kubernetes.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
		asked <- err
	}()
	select {
	case err := <-asked:
		t.Errorf("a running component does not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	select {
	case err := <-asked:
		if err == nil {
			t.Error("a request without a server succeeded")
		}
	case <-time.After(time.Minute):
		t.Error("a stopping component waits for a server")
	}
}

// Informers do not keep who has set which fields of objects: each node would keep that of
// all tenants.
func TestInformersKeepNoManagedFields(t *testing.T) {
	const service = `{"kind":"Service","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":"1","managedFields":[{"manager":"kubectl","operation":"Update"}]}}`
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = fmt.Fprintf(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, service)
			return
		}
		if r.URL.Query().Get("sendInitialEvents") != "" {
			_, _ = fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":%s}\n", service)
			_, _ = fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer listener.Close()
	defer listener.CloseClientConnections()
	provider, err := client.NewRemote(&rest.Config{Host: listener.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, err := provider.As("system:kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = provider.Run(ctx) })
	own := c.Watch(corev1.SchemeGroupVersion.WithResource("services"), "", nil)
	running.Go(func() { own.RunWithContext(ctx) })
	for _, informer := range []cache.SharedIndexInformer{own, c.Informers.Core().V1().Services().Informer()} {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("an informer has not synced")
		}
		object, ok, err := informer.GetStore().GetByKey("default/a")
		if err != nil || !ok {
			t.Fatalf("the Service is there: %t, %v", ok, err)
		}
		if fields := object.(*corev1.Service).ManagedFields; fields != nil {
			t.Errorf("the Service has the managed fields %v", fields)
		}
	}
}
