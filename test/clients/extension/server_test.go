package extension

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// timeout is the timeout of each condition.
const timeout = time.Minute

const (
	namespace   = "orchard"
	serviceName = "v1alpha1.orchard.example.com"
)

var apples = groupVersion.WithResource("apples")

// cluster is the cluster of $KUBECONFIG with the extension registered.
type cluster struct {
	*testing.T
	config     *rest.Config
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
	services   aggregatorclient.APIServiceInterface

	creators []string // the users that created apples, as the extension sees them
	storage  *storage
	files    string // directory of the certificate
	listen   string // address of the extension
	stop     func()
}

func connect(t *testing.T) *cluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(t, err)
	config.QPS = -1
	c := &cluster{
		T: t, config: config, kubernetes: kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(config),
		services: aggregatorclient.NewForConfigOrDie(config).APIServices(), files: t.TempDir(),
	}
	c.storage = newStorage(func(user string, groups []string) {
		c.creators = append(c.creators, user+" "+strings.Join(groups, ","))
	})
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await repeats a check until it succeeds.
func (c *cluster) await(what string, ask func(ctx context.Context) bool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ask(ctx) {
		select {
		case <-ctx.Done():
			c.Fatalf("%s: not within %s", what, timeout)
		case <-tick.C:
		}
	}
}

// run serves the extension until stop is called.
func (c *cluster) run() {
	c.Helper()
	listener, err := net.Listen("tcp", c.listen)
	must(c.T, err)
	c.listen = listener.Addr().String()
	breakable := &breakableListener{Listener: listener}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, breakable, filepath.Join(c.files, "tls.crt"), filepath.Join(c.files, "tls.key"), os.Getenv("KUBECONFIG"), c.storage)
	}()
	c.stop = func() {
		cancel()
		breakable.kill()
		if err := <-done; err != nil {
			c.Errorf("the extension ended: %v", err)
		}
	}
}

// breakableListener is a listener whose connections can be closed at once, as
// if the process had ended. Otherwise the server would wait for the watches of
// clients to end.
type breakableListener struct {
	net.Listener
	mu    sync.Mutex // guards conns and dead
	conns []net.Conn
	dead  bool
}

// Accept implements net.Listener.
func (l *breakableListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = conn.Close()
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

func (l *breakableListener) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}

// certificate writes a self-signed serving certificate and returns it.
func (c *cluster) certificate() []byte {
	c.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(c.T, err)
	name := "api." + namespace + ".svc"
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(c.T, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must(c.T, err)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(c.T, os.WriteFile(filepath.Join(c.files, "tls.crt"), authority, 0o600))
	must(c.T, os.WriteFile(filepath.Join(c.files, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	return authority
}

// register creates the Service, its EndpointSlice and the APIService.
func (c *cluster) register(authority []byte) {
	c.Helper()
	ctx := c.Context()
	_, err := c.kubernetes.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(c.T, err)
	_, err = c.kubernetes.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "api"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{})
	must(c.T, err)
	host, port, err := net.SplitHostPort(c.listen)
	must(c.T, err)
	number, err := net.LookupPort("tcp", port)
	must(c.T, err)
	_, err = c.kubernetes.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "api", Labels: map[string]string{discoveryv1.LabelServiceName: "api"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(number))}},
	}, metav1.CreateOptions{})
	must(c.T, err)
	_, err = c.services.Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: groupVersion.Group, Version: groupVersion.Version, GroupPriorityMinimum: 2000, VersionPriority: 200,
			CABundle: authority, Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: "api"},
		},
	}, metav1.CreateOptions{})
	must(c.T, err)
}

func (c *cluster) unregister() {
	ctx := context.WithoutCancel(c.Context())
	if err := c.services.Delete(ctx, serviceName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		c.Error(err)
	}
	for _, name := range []string{namespace, "windfall"} {
		if err := c.kubernetes.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.Error(err)
		}
	}
}

// available waits for the Available condition.
func (c *cluster) available(status apiregistrationv1.ConditionStatus) (reason string) {
	c.Helper()
	c.await("Available="+string(status), func(ctx context.Context) bool {
		s, err := c.services.Get(ctx, serviceName, metav1.GetOptions{})
		if err != nil || len(s.Status.Conditions) == 0 {
			return false
		}
		reason = s.Status.Conditions[0].Reason
		return s.Status.Conditions[0].Status == status
	})
	return reason
}

func newApple(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": groupVersion.String(), "kind": "Apple", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"variety": "Boskoop"},
	}}
}

// TestExtensionServer checks that an extension API server serves its part of
// the API while it runs, and that the rest of the API is not affected when it
// stops.
func TestExtensionServer(t *testing.T) {
	c := connect(t)
	own, err := c.kubernetes.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	must(t, err)
	c.listen = net.JoinHostPort(own.Endpoints[0].Addresses[0], "0")
	authority := c.certificate()
	c.run()
	t.Cleanup(func() { c.stop() })
	t.Cleanup(c.unregister)
	c.register(authority)
	if reason := c.available(apiregistrationv1.ConditionTrue); reason != "Passed" {
		t.Errorf("reason %s", reason)
	}
	c.checkDiscovery()
	c.checkVerbs()
	c.checkAuthorization()
	c.checkOpenAPI()

	c.stop()
	c.stop = func() {}
	// The first failing request triggers the availability check.
	_, err = c.dynamic.Resource(apples).Namespace(namespace).Get(t.Context(), "any", metav1.GetOptions{})
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a stopped server: %v", err)
	}
	if reason := c.available(apiregistrationv1.ConditionFalse); reason != "FailedDiscoveryCheck" {
		t.Errorf("reason %s", reason)
	}
	c.checkUnavailable()

	c.run()
	c.available(apiregistrationv1.ConditionTrue)
	c.checkDiscovery()
	c.await("the namespace is gone", func(ctx context.Context) bool {
		_, err := c.kubernetes.CoreV1().Namespaces().Get(ctx, "windfall", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func (c *cluster) checkDiscovery() {
	c.Helper()
	for _, legacy := range []bool{false, true} {
		client := discovery.NewDiscoveryClientForConfigOrDie(c.config)
		client.UseLegacyDiscovery = legacy
		c.await("discovery", func(context.Context) bool {
			groups, lists, err := client.ServerGroupsAndResources()
			return err == nil &&
				slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool {
					return g.Name == groupVersion.Group && g.PreferredVersion.Version == groupVersion.Version
				}) &&
				slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
					return l.GroupVersion == groupVersion.String() && len(l.APIResources) == 1 && l.APIResources[0].Kind == "Apple" && l.APIResources[0].Namespaced
				})
		})
	}
}

// checkVerbs creates, changes, lists, watches and deletes an apple.
func (c *cluster) checkVerbs() {
	c.Helper()
	ctx, client := c.Context(), c.dynamic.Resource(apples).Namespace(namespace)
	w, err := client.Watch(ctx, metav1.ListOptions{})
	must(c.T, err)
	defer w.Stop()
	_, err = client.Create(ctx, newApple("first"), metav1.CreateOptions{})
	must(c.T, err)
	if _, err = client.Create(ctx, newApple("first"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		c.Errorf("created twice: %v", err)
	}
	patched, err := client.Patch(ctx, "first", types.MergePatchType, []byte(`{"spec":{"variety":"Elstar"}}`), metav1.PatchOptions{})
	must(c.T, err)
	if variety, _, _ := unstructured.NestedString(patched.Object, "spec", "variety"); variety != "Elstar" {
		c.Errorf("patched: %v", patched.Object)
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	must(c.T, err)
	if len(list.Items) != 1 {
		c.Errorf("%d apples", len(list.Items))
	}
	must(c.T, client.Delete(ctx, "first", metav1.DeleteOptions{}))
	var seen []string
	for len(seen) < 3 {
		select {
		case e := <-w.ResultChan():
			seen = append(seen, string(e.Type))
		case <-time.After(timeout):
			c.Fatalf("watched only %v", seen)
		}
	}
	if !slices.Equal(seen, []string{"ADDED", "MODIFIED", "DELETED"}) {
		c.Errorf("watched %v", seen)
	}
}

// checkAuthorization checks that the extension knows the user of a request, and
// that it asks the cluster for permission.
func (c *cluster) checkAuthorization() {
	c.Helper()
	as := rest.CopyConfig(c.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "gardener", Groups: []string{"gardeners"}}
	_, err := dynamic.NewForConfigOrDie(as).Resource(apples).Namespace(namespace).Create(c.Context(), newApple("theirs"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		c.Errorf("without a role: %v", err)
	}
	as.Impersonate.Groups = []string{"gardeners", "system:masters"}
	_, err = dynamic.NewForConfigOrDie(as).Resource(apples).Namespace(namespace).Create(c.Context(), newApple("theirs"), metav1.CreateOptions{})
	must(c.T, err)
	if last := c.creators[len(c.creators)-1]; !strings.HasPrefix(last, "gardener gardeners,system:masters") {
		c.Errorf("the extension saw %s", last)
	}
}

// checkOpenAPI finds the extension's kind in both versions of OpenAPI.
func (c *cluster) checkOpenAPI() {
	c.Helper()
	client := discovery.NewDiscoveryClientForConfigOrDie(c.config)
	c.await("OpenAPI v2", func(context.Context) bool {
		doc, err := client.OpenAPISchema()
		if err != nil {
			return false
		}
		for _, d := range doc.GetDefinitions().GetAdditionalProperties() {
			if d.GetName() == definitionPrefix+"Apple" {
				return true
			}
		}
		return false
	})
	c.await("OpenAPI v3", func(context.Context) bool {
		paths, err := client.OpenAPIV3().Paths()
		if err != nil || paths["apis/"+groupVersion.String()] == nil {
			return false
		}
		raw, err := paths["apis/"+groupVersion.String()].Schema("application/json")
		return err == nil && strings.Contains(string(raw), "The variety that the apple is of.")
	})
}

// checkUnavailable checks the effect of a stopped extension on other clients.
func (c *cluster) checkUnavailable() {
	c.Helper()
	ctx := c.Context()
	client := discovery.NewDiscoveryClientForConfigOrDie(c.config)
	c.await("discovery names the missing group", func(context.Context) bool {
		_, lists, err := client.ServerGroupsAndResources()
		return discovery.IsGroupDiscoveryFailedError(err) && strings.Contains(err.Error(), groupVersion.String()) && len(lists) > 20
	})
	_, err := c.kubernetes.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "windfall"}}, metav1.CreateOptions{})
	must(c.T, err)
	must(c.T, c.kubernetes.CoreV1().Namespaces().Delete(ctx, "windfall", metav1.DeleteOptions{}))
	c.await("the namespace's condition says why it is not deleted", func(ctx context.Context) bool {
		ns, err := c.kubernetes.CoreV1().Namespaces().Get(ctx, "windfall", metav1.GetOptions{})
		must(c.T, err)
		return slices.ContainsFunc(ns.Status.Conditions, func(cond corev1.NamespaceCondition) bool {
			return cond.Type == corev1.NamespaceDeletionDiscoveryFailure && cond.Status == corev1.ConditionTrue && cond.Reason == "DiscoveryFailed"
		})
	})
}
