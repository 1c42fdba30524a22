package ingress

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/ingress/gateway"
	"github.com/coracle-io/coracle/internal/ingress/proxy"
)

// bench is a controller with a fake API server, and ports of its own in place of 80 and
// 443.
type bench struct {
	*controllertest.Cluster
	t *testing.T

	mu      sync.Mutex // guards the following
	taken   bool       // whether the ports are another program's
	at      map[int]string
	watched map[string]bool // resources
}

const httpPort, httpsPort = 80, 443

func start(t *testing.T, taken bool, all ...runtime.Object) *bench {
	t.Helper()
	b := &bench{Cluster: controllertest.New(t, append(all, newNode("here", "192.0.2.1"))...), t: t, taken: taken, at: map[int]string{}, watched: map[string]bool{}}
	b.Env.Client.Dynamic = newDynamic()
	b.Env.Client.Watch = func(gvr schema.GroupVersionResource, _ string, _ fields.Selector) cache.SharedIndexInformer {
		b.mu.Lock()
		b.watched[gvr.Resource] = true
		b.mu.Unlock()
		if gvr.Group == gateway.Group || gvr.Group == "apiextensions.k8s.io" {
			return dynamicinformer.NewFilteredDynamicInformer(b.Env.Client.Dynamic, gvr, "", 0, cache.Indexers{}, nil).Informer()
		}
		generic, err := informers.NewSharedInformerFactory(b.Fake, 0).ForResource(gvr)
		if err != nil {
			panic(err)
		}
		return generic.Informer()
	}
	p, err := proxy.New(proxy.Config{HTTPSPort: httpsPort, Metrics: proxy.NewMetrics()})
	if err != nil {
		t.Fatal(err)
	}
	b.Run(controller.Descriptor{Name: "ingress", New: func(env *controller.Env) (controller.Controller, error) {
		return New(Config{
			Client: env.Client, Events: env.Events, Proxy: p, Addresses: []string{"192.0.2.1"}, HTTPPort: httpPort, HTTPSPort: httpsPort, Listen: b.listen,
		}), nil
	}})
	return b
}

func (b *bench) listen(port int) (net.Listener, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken {
		return nil, &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.at[port] = l.Addr().String()
	return listener{l, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.at, port)
	}}, nil
}

// listener is a listener that says when it is closed.
type listener struct {
	net.Listener
	closed func()
}

// Close implements net.Listener.
func (l listener) Close() error {
	l.closed()
	return l.Listener.Close()
}

// address returns where a port is served, "" if nowhere.
func (b *bench) address(port int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at[port]
}

func (b *bench) isWatched(resource string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watched[resource]
}

// status returns the addresses of an Ingress.
func (b *bench) status(namespace, name string) string {
	i, err := b.Fake.NetworkingV1().Ingresses(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, p := range i.Status.LoadBalancer.Ingress {
		all = append(all, p.IP+p.Hostname)
	}
	return strings.Join(all, " ")
}

// ask returns the status and the body of the answer to a request for a host, which may
// have a path behind it, or the error.
func (b *bench) ask(host string) string {
	host, path, _ := strings.Cut(host, "/")
	request, err := http.NewRequest(http.MethodGet, "http://"+b.address(httpPort)+"/"+path, nil)
	if err != nil {
		return err.Error()
	}
	request.Host = host
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
}

func newNode(name, address string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}}}
}

func (b *bench) eventually(get func() string, want string) {
	b.t.Helper()
	controllertest.Eventually(b.t, get, want)
}

func newClass(name, controllerName string, isDefault bool) *networkingv1.IngressClass {
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: controllerName}}
	if isDefault {
		class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	return class
}

// Without an Ingress of its own, the controller takes no port and watches nothing but
// Ingresses, classes and nodes.
func TestNothingIsTakenWithoutAnIngress(t *testing.T) {
	foreign := newIngress("web", "foreign", 0, newRule("foreign.example", "/=web:80"))
	foreign.Spec.IngressClassName = new("nginx")
	foreign.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{Hostname: "lb.example"}}
	b := start(t, false, foreign, newClass("nginx", "k8s.io/ingress-nginx", false), newService("web", "web"))
	b.eventually(func() string {
		class, err := b.Fake.NetworkingV1().IngressClasses().Get(context.Background(), DefaultClass, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return class.Spec.Controller + " " + class.Annotations[networkingv1.AnnotationIsDefaultIngressClass]
	}, ControllerName+" true")

	own := newIngress("web", "own", 0, newRule("own.example", "/=web:80"))
	ingresses := b.Fake.NetworkingV1().Ingresses("web")
	for _, resource := range []string{"services", "secrets", "endpointslices", "pods"} {
		if b.isWatched(resource) {
			t.Errorf("%s are watched without an Ingress", resource)
		}
	}
	if at := b.address(httpPort); at != "" {
		t.Errorf("a port is open without an Ingress")
	}
	if _, err := ingresses.Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() string { return b.status("web", "own") }, "192.0.2.1")
	b.eventually(func() string { return b.ask("own.example") }, "503 503 Service Unavailable")
	if got := b.ask("foreign.example"); got != "404 404 Not Found" {
		t.Errorf("an Ingress of another class is served: %s", got)
	}
	if got := b.status("web", "foreign"); got != "lb.example" {
		t.Errorf("an Ingress of another class has the addresses %s", got)
	}
	if err := ingresses.Delete(t.Context(), "own", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() string { return b.address(httpPort) + b.address(httpsPort) }, "")
}

// Which Ingresses are this controller's: by class, by the older annotation, or without
// a class if the default class is.
func TestClasses(t *testing.T) {
	with := func(name string, change func(*networkingv1.Ingress)) *networkingv1.Ingress {
		i := newIngress("web", name, 0, newRule(name+".example", "/=web:80"))
		i.Spec.IngressClassName = nil
		change(i)
		return i
	}
	b := start(t, false,
		newClass("inner", ControllerName, false), newClass("nginx", "k8s.io/ingress-nginx", false),
		with("named", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("inner") }),
		with("annotated", func(i *networkingv1.Ingress) { i.Annotations = map[string]string{classAnnotation: "inner"} }),
		with("unnamed", func(*networkingv1.Ingress) {}),
		with("other", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("nginx") }),
		with("other-annotated", func(i *networkingv1.Ingress) { i.Annotations = map[string]string{classAnnotation: "nginx"} }),
		with("missing", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("missing") }),
	)
	for name, served := range map[string]bool{"named": true, "annotated": true, "unnamed": true, "other": false, "other-annotated": false, "missing": false} {
		want := "404 404 Not Found"
		if served {
			want = "503 503 Service Unavailable"
		}
		b.eventually(func() string { return b.ask(name + ".example") }, want)
	}
	// A newer default class of another controller takes those without a class.
	if _, err := b.Fake.NetworkingV1().IngressClasses().Create(t.Context(), newClass("a", "k8s.io/ingress-nginx", true), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	own, err := b.Fake.NetworkingV1().IngressClasses().Get(t.Context(), DefaultClass, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own = own.DeepCopy()
	own.Annotations = nil
	if _, err := b.Fake.NetworkingV1().IngressClasses().Update(t.Context(), own, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() string { return b.ask("unnamed.example") }, "404 404 Not Found")
}

// A port that is taken is named in an event of each Ingress, and is served once it is
// free.
func TestTakenPort(t *testing.T) {
	b := start(t, true, newIngress("web", "own", 0, newRule("own.example", "/=web:80")), newService("web", "web"))
	var events []string
	b.eventually(func() string {
		events = append(events, b.DrainEvents()...)
		n := 0
		for _, e := range events {
			if strings.HasPrefix(e, "Warning PortConflict port ") {
				n++
			}
		}
		return fmt.Sprint(n)
	}, "2")
	if got := b.status("web", "own"); got != "" {
		t.Errorf("the Ingress has the addresses %s", got)
	}
	b.mu.Lock()
	b.taken = false
	b.mu.Unlock()
	b.eventually(func() string { return b.status("web", "own") }, "192.0.2.1")
}

// The addresses of other nodes with an ingress controller stay in the status until the
// nodes have left. Those of the own node are there as long as the node is: otherwise two
// servers would write them and take them away by turns.
func TestAddressesOfOtherNodes(t *testing.T) {
	i := newIngress("web", "own", 0, newRule("own.example", "/=web:80"))
	i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.9"}, {IP: "192.0.2.2"}, {Hostname: "former.example"}}
	b := start(t, false, i, newNode("there", "192.0.2.2"))
	b.eventually(func() string { return b.status("web", "own") }, "192.0.2.1 192.0.2.2")
	nodes := b.Fake.CoreV1().Nodes()
	for _, step := range []struct {
		err  func() error
		want string
	}{
		{func() error { return nodes.Delete(t.Context(), "there", metav1.DeleteOptions{}) }, "192.0.2.1"},
		{func() error { return nodes.Delete(t.Context(), "here", metav1.DeleteOptions{}) }, ""},
		{func() error {
			_, err := nodes.Create(t.Context(), newNode("here", "192.0.2.1"), metav1.CreateOptions{})
			return err
		}, "192.0.2.1"},
	} {
		if err := step.err(); err != nil {
			t.Fatal(err)
		}
		b.eventually(func() string { return b.status("web", "own") }, step.want)
	}
}

// A new Secret and a changed one are served.
func TestSecretsAreServed(t *testing.T) {
	i := newIngress("web", "own", 0, newRule("own.example", "/=web:80"))
	i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"own.example"}, SecretName: "own"}}
	b := start(t, false, i, newService("web", "web"))
	served := func() string {
		conn, err := tls.Dial("tcp", b.address(httpsPort), &tls.Config{ServerName: "own.example", InsecureSkipVerify: true})
		if err != nil {
			return err.Error()
		}
		defer func() { _ = conn.Close() }()
		return strings.Join(conn.ConnectionState().PeerCertificates[0].DNSNames, " ")
	}
	b.eventually(served, "") // the default certificate
	var events []string
	b.eventually(func() string {
		events = append(events, b.DrainEvents()...)
		return fmt.Sprint(slices.Contains(events, "Warning InvalidCertificate Secret own: "+errNoSecret.Error()))
	}, "true")
	secrets := b.Fake.CoreV1().Secrets("web")
	created, err := secrets.Create(t.Context(), newSecret(t, "web", "own", "own.example", "first"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.eventually(served, "own.example first")
	created = created.DeepCopy()
	created.Data = newSecret(t, "web", "own", "own.example", "second").Data
	if _, err := secrets.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually(served, "own.example second")
}

// Requests go to pods of the namespace alone, by what the API has of pods now.
func TestEndpointsFollowPods(t *testing.T) {
	pod := func(namespace, address string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}, Status: v1.PodStatus{Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: address}}}}
	}
	b := start(t, false, newIngress("web", "own", 0, newRule("own.example", "/=web:80")), newService("web", "web"),
		newSlice("web", "web", "198.51.100.1", "198.51.100.2"), pod("web", "198.51.100.1"), pod("other", "198.51.100.2"))
	var events []string
	happens := func(endpoint string) {
		t.Helper()
		b.eventually(func() string {
			events = append(events, b.DrainEvents()...)
			return fmt.Sprint(slices.Contains(events, "Warning UnsupportedBackend Service web: its endpoint "+endpoint+" is no pod of the namespace, and gets no requests"))
		}, "true")
	}
	happens("198.51.100.2") // the least that is none
	if err := b.Fake.CoreV1().Pods("web").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	happens("198.51.100.1")
}

// newSecret returns a Secret with a certificate for names, which signs itself.
func newSecret(t *testing.T, namespace, name string, names ...string) *v1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return newSecretOf(t, key, namespace, name, names...)
}

// newSecretOf returns a Secret as newSecret does, with a private key.
func newSecretOf(t *testing.T, key crypto.Signer, namespace, name string, names ...string) *v1.Secret {
	t.Helper()
	encodedKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	encoded, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: v1.SecretTypeTLS,
		Data: map[string][]byte{
			v1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encoded}),
			v1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encodedKey}),
		},
	}
}

func TestCertificatesOfSecrets(t *testing.T) {
	good := func() *v1.Secret { s := newSecret(t, "n", "s", "a.example"); s.ResourceVersion = "1"; return s }
	with := func(change func(*v1.Secret)) *v1.Secret { s := good(); change(s); return s }
	for what, test := range map[string]struct {
		secret *v1.Secret
		wrong  string // a part of the error; "" for none
	}{
		"good":           {good(), ""},
		"none":           {nil, "there is no Secret"},
		"another type":   {with(func(s *v1.Secret) { s.Type = v1.SecretTypeOpaque }), "there is no Secret"},
		"no certificate": {with(func(s *v1.Secret) { s.Data[v1.TLSCertKey] = []byte("x") }), "does not begin with a certificate"},
		"a broken one": {with(func(s *v1.Secret) {
			s.Data[v1.TLSCertKey] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
		}), "x509"},
		"the key of another": {with(func(s *v1.Secret) { s.Data[v1.TLSPrivateKeyKey] = good().Data[v1.TLSPrivateKeyKey] }), "private key does not match"},
		"a large key":        {with(func(s *v1.Secret) { s.Data[v1.TLSPrivateKeyKey] = bytes.Repeat([]byte("x"), maxKey+1) }), "more than"},
		"a large chain":      {with(func(s *v1.Secret) { s.Data[v1.TLSCertKey] = bytes.Repeat([]byte("x"), maxCertificate+1) }), "more than"},
		"many bits":          {with(func(s *v1.Secret) { s.Data[v1.TLSCertKey] = certificateOfRSA(t, maxRSABits+8) }), "the key has 8200 bits"},
	} {
		c := certificates{secret: func(string, string) *v1.Secret { return test.secret }}
		got, err := c.get("n", "s")
		if (test.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v, want %q", what, err, test.wrong)
		}
		if again, _ := c.get("n", "s"); again != got {
			t.Errorf("%s: parsed again without a change", what)
		}
		if test.secret == nil {
			continue
		}
		reduced, err := reduce(test.secret)
		if err != nil || isTooLarge(reduced.(*v1.Secret)) != isTooLarge(test.secret) {
			t.Errorf("%s: reduced to %d and %d bytes, %v", what, len(reduced.(*v1.Secret).Data[v1.TLSCertKey]), len(reduced.(*v1.Secret).Data[v1.TLSPrivateKeyKey]), err)
		}
		c.forget()
		if c.forget(); len(c.parsed) != 0 {
			t.Errorf("%s: a certificate that nothing uses is kept", what)
		}
	}
}

// certificateOfRSA returns a certificate in PEM for an RSA key that nobody has: with a
// modulus of so many bits.
func certificateOfRSA(t *testing.T, bits int) []byte {
	t.Helper()
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	public := &rsa.PublicKey{N: modulus.Add(modulus, big.NewInt(1)), E: 65537}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	encoded, err := x509.CreateCertificate(rand.Reader, template, template, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encoded})
}

// What is kept of an object compiles to the same table.
func TestReducedObjects(t *testing.T) {
	i := newIngress("web", "own", 0, newRule("own.example", "/=web:http"))
	i.Annotations = map[string]string{MaxBodyAnnotation: "1Ki", "other": "dropped"}
	s := newService("web", "web")
	s.Spec.Ports[0].AppProtocol = new("kubernetes.io/h2c")
	slice := newSlice("web", "web", "10.0.0.1", "10.0.0.2")
	slice.Endpoints[1].TargetRef = &v1.ObjectReference{Kind: "Pod", Name: "unknown"}
	reducedOf := func(o any) any {
		reduced, err := reduce(o)
		if err != nil {
			t.Fatal(err)
		}
		return reduced
	}
	foreign := []string{"web/10.0.0.2"}
	full := objects{ingresses: []*networkingv1.Ingress{i}, services: []*v1.Service{s}, slices: []*discoveryv1.EndpointSlice{slice}, foreign: foreign}
	small := objects{
		ingresses: []*networkingv1.Ingress{reducedOf(i).(*networkingv1.Ingress)}, services: []*v1.Service{reducedOf(s).(*v1.Service)},
		slices: []*discoveryv1.EndpointSlice{reducedOf(slice).(*discoveryv1.EndpointSlice)}, foreign: foreign,
	}
	for _, o := range []objects{full, small} {
		served, problems := o.compile()
		if len(problems) > 0 {
			t.Errorf("problems %v", problems)
		}
		if got := answered(t, served, "own.example", "/"); got != "web/own 10.0.0.1:8080" {
			t.Errorf("answered by %s", got)
		}
	}
	if kept := small.ingresses[0].Annotations; kept[MaxBodyAnnotation] != "1Ki" || len(kept) != 1 {
		t.Errorf("kept the annotations %v", kept)
	}
}
