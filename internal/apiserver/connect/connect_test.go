package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

func pod(name string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Ports: []corev1.ContainerPort{{ContainerPort: 8080}}})
	}
	return p
}

func TestContainer(t *testing.T) {
	two := pod("two", "a", "b")
	two.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	for _, test := range []struct {
		pod             *corev1.Pod
		name, want, err string
	}{
		{pod("one", "a"), "", "a", ""},
		{two, "b", "b", ""},
		{two, "init", "init", ""},
		{two, "", "", "a container name must be specified for pod two, choose one of: [a b] or one of the init containers: [init]"},
		{two, "c", "", "container c is not valid for pod two"},
	} {
		got, err := containerOf(test.pod, test.name)
		if got != test.want || (err != nil) != (test.err != "") || err != nil && err.Error() != test.err {
			t.Errorf("%s %q: %q %v", test.pod.Name, test.name, got, err)
		}
	}
}

func TestLogOptions(t *testing.T) {
	for text, message := range map[string]string{
		"tailLines=-1":                   "tailLines: Invalid value: -1: must be greater than or equal to 0",
		"limitBytes=0":                   "limitBytes: Invalid value: 0: must be greater than 0",
		"sinceSeconds=0":                 "sinceSeconds: Invalid value: 0: must be greater than 0",
		"tailLines=x":                    `strconv.ParseInt: parsing "x": invalid syntax`,
		"stream=Other":                   `stream: Unsupported value: "Other"`,
		"tailLines=1&stream=Stdout":      "`tailLines` and specific `stream` are mutually exclusive for now",
		"follow=true&tailLines=5":        "",
		"sinceTime=2026-01-02T03:04:05Z": "",
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = query(values).logOptions("web", true)
		if (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err := query(url.Values{"stream": {"Stdout"}}).logOptions("web", false)
	if want := `PodLogOptions "web" is invalid: stream: Forbidden: may not be specified`; err == nil || err.Error() != want {
		t.Errorf("streams, turned off: %v, want %s", err, want)
	}
}

// kubelet returns a connector to a test server that acts as a kubelet and a
// pod.
func kubelet(t *testing.T, handler http.HandlerFunc) (*Connector, *objectstest.Memory) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	running := pod("web", "main")
	running.Spec.NodeName, running.Status.PodIP = "one", "10.0.0.9"
	lost := pod("lost", "main")
	lost.Spec.NodeName = "gone"
	memory := objectstest.NewMemory().
		Put(objects.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "one"},
			Status: corev1.NodeStatus{
				Addresses:       []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "unreachable"}, {Type: corev1.NodeInternalIP, Address: u.Hostname()}},
				DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
			},
		}).
		Put(objects.Pods, running, pod("waiting", "main"), lost)
	return New(Config{
		KubeletTLS: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}, Objects: memory,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, u.Host)
		},
	}), memory
}

func request(c *Connector, resource, name, subresource, rest string) (*httptest.ResponseRecorder, error) {
	return requestBy(c, http.MethodGet, resource, name, subresource, rest)
}

func requestBy(c *Connector, method, resource, name, subresource, rest string) (*httptest.ResponseRecorder, error) {
	r := httptest.NewRequest(method, "/api/v1/namespaces/default/"+resource+"/"+name+"/"+subresource+rest, nil)
	info := &apirequest.RequestInfo{
		Namespace: "default", Resource: resource, Name: name, Subresource: subresource, Path: r.URL.Path,
		Parts: append([]string{resource, name, subresource}, strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/"+resource+"/"+name+"/"+subresource), "/")[1:]...),
	}
	if last := len(info.Parts) - 1; info.Parts[last] == "" {
		info.Parts = info.Parts[:last]
	}
	options, err := c.Options(info, r)
	if err != nil {
		return nil, err
	}
	var failed error
	h, err := c.Handler(r.Context(), info, options, r, func(err error) { failed = err })
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, failed
}

func TestLog(t *testing.T) {
	c, _ := kubelet(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("tailLines") {
		case "7":
			http.Error(w, "container is waiting to start: ContainerCreating", http.StatusBadRequest)
		default:
			_, _ = io.WriteString(w, r.URL.RequestURI())
		}
	})
	w, err := request(c, "pods", "web", "log", "?follow=true&timestamps=1")
	if err != nil || w.Body.String() != "/containerLogs/default/web/main?follow=true&timestamps=true" || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v %+v", err, w)
	}
	if w, err := request(c, "pods", "web", "log", ""); err != nil || !w.Flushed {
		t.Errorf("a client waits for the first line to learn that there is a log: %v", err)
	}
	if _, err := request(c, "pods", "web", "log", "?tailLines=7"); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "ContainerCreating") {
		t.Errorf("%v", err)
	}
	if w, err := request(c, "pods", "waiting", "log", ""); err != nil || w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("%v %+v", err, w)
	}
	if _, err := request(c, "pods", "waiting", "portforward", ""); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "pod waiting does not have a host assigned") {
		t.Errorf("%v", err)
	}
	if _, err := request(c, "pods", "lost", "log", ""); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	if _, err := request(c, "pods", "missing", "log", ""); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
}

func TestProxy(t *testing.T) {
	c, memory := kubelet(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host+r.URL.RequestURI()) })
	ready, port, name, protocol := true, int32(8080), "http", corev1.ProtocolTCP
	memory.Put(objects.Services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	})
	memory.Put(objects.EndpointSlices, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"},
		}},
	})
	for _, test := range []struct{ resource, name, rest, want string }{
		{"pods", "https:web:8080", "/a/b?c=d", "/a/b?c=d"},
		{"pods", "https:web:", "/", "/"},
		{"services", "https:web:80", "/x", "/x"},
		{"services", "https:web:http", "/x/", "/x/"},
		{"nodes", "one", "/metrics", "/metrics"},
	} {
		w, err := request(c, test.resource, test.name, "proxy", test.rest)
		if err != nil || w.Code != http.StatusOK || !strings.HasSuffix(w.Body.String(), test.want) {
			t.Errorf("%+v: %v %+v", test, err, w)
		}
	}
	for _, test := range []struct{ resource, name, message string }{
		{"services", "web:81", `no service port 81 found for service "web"`},
		{"services", "web:ftp", `no endpoints available for service "web"`},
		{"services", "web", `no endpoints available for service "web"`}, // the port has a name
		{"services", "missing", `services "missing" not found`},
		{"pods", "a:b:c:d", `invalid pod request "a:b:c:d"`},
		{"pods", "web:http", `invalid pod request "web:http"`},
		{"nodes", "one:http", `invalid node request "one:http"`},
		{"pods", "waiting", "address not allowed"},
	} {
		if _, err := request(c, test.resource, test.name, "proxy", "/"); err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	for host, proxied := range map[string]bool{"10.0.0.1": true, "fd00::1": true, "169.254.169.254": false, "127.0.0.1": false, "::1": false, "0.0.0.0": false, "localhost": false, "": false} {
		if err := checkProxied(t.Context(), host); proxied != (err == nil) {
			t.Errorf("%q is proxied: %v, want %v", host, err == nil, proxied)
		}
	}
}

// The page at the root has relative links, so its path must end in a slash.
func TestProxyOfTheRootEndsInASlash(t *testing.T) {
	c, _ := kubelet(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/new/place?x=y", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI())
	})
	const root = "/api/v1/namespaces/default/pods/https:web:8080/proxy"
	for _, test := range []struct {
		method, rest   string
		code           int
		location, body string
	}{
		{"GET", "", 301, root + "/", ""},
		{"HEAD", "", 301, root + "/", ""},
		{"GET", "?a=b&c=%2F", 301, root + "/?a=b&c=%2F", ""},
		{"POST", "", 200, "", "POST /"},
		{"PUT", "?a=b", 200, "", "PUT /?a=b"},
		{"DELETE", "", 200, "", "DELETE /"},
		{"GET", "/", 200, "", "GET /"},
		{"GET", "/a", 200, "", "GET /a"},
		{"GET", "/a/", 200, "", "GET /a/"},
		{"GET", "/a/../../b", 200, "", "GET /b"},
		{"GET", "/moved", 302, root + "/new/place?x=y", ""},
	} {
		w, err := requestBy(c, test.method, "pods", "https:web:8080", "proxy", test.rest)
		if err != nil || w.Code != test.code || w.Header().Get("Location") != test.location || test.body != "" && w.Body.String() != test.body {
			t.Errorf("%s %q: %v %d %q %q", test.method, test.rest, err, w.Code, w.Header().Get("Location"), w.Body)
		}
	}
}

// The proxy of a Service ignores endpoints that are not addresses of pods of
// the namespace, so that clients cannot reach other hosts through it.
func TestEndpointsOfPodsAreProxied(t *testing.T) {
	of := func(namespace, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}
	}
	for _, test := range []struct {
		name    string
		address string
		target  *corev1.ObjectReference
		proxied bool
	}{
		{"a pod's address", "10.0.0.9", of("default", "web"), true},
		{"an address without a pod", "10.0.0.9", nil, false},
		{"an address that is not the pod's", "10.0.0.10", of("default", "web"), false},
		{"a pod of another namespace", "10.0.0.9", of("kube-system", "web"), false},
		{"a pod that is gone", "10.0.0.9", of("default", "gone"), false},
	} {
		c, memory := kubelet(t, func(http.ResponseWriter, *http.Request) {})
		port, name := int32(8080), ""
		memory.Put(objects.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		})
		memory.Put(objects.EndpointSlices, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{test.address}, TargetRef: test.target}},
		})
		_, err := request(c, "services", "https:web:", "proxy", "/")
		if test.proxied != (err == nil) || err != nil && !strings.Contains(err.Error(), `no endpoints available for service "web"`) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestDialedAddresses tests which addresses of nodes and pods are dialed.
func TestDialedAddresses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	at := netip.MustParseAddrPort(listener.Addr().String())
	config := Config{Own: func(a netip.AddrPort) bool { return a.Addr().IsLoopback() && a.Port() == at.Port() }}
	refused := func(c Config, allowed func(netip.Addr) bool, host string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, err := c.dialer(allowed)(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(at.Port()))))
		if err == nil {
			return conn.Close() != nil
		}
		return apierrors.IsBadRequest(asStatus(err))
	}
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "255.255.255.255"} {
		if !refused(config, netip.Addr.IsGlobalUnicast, host) {
			t.Errorf("pods are reached at %s", host)
		}
		if !refused(config, isKubelets, host) {
			t.Errorf("kubelets are reached at %s, where the API server listens", host)
		}
	}
	if refused(Config{}, isKubelets, "127.0.0.1") {
		t.Error("a kubelet on loopback is not reached")
	}
	if !refused(Config{}, netip.Addr.IsGlobalUnicast, "127.0.0.1") {
		t.Error("a pod on loopback is reached")
	}
}

// counted is a connection that is counted while it is open.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// The number of idle connections is bounded, however many ports of pods are
// used.
func TestIdleConnectionsAreBounded(t *testing.T) {
	c, _ := kubelet(t, func(http.ResponseWriter, *http.Request) {})
	var open atomic.Int64
	dial := c.direct.DialContext
	c.direct.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &counted{Conn: conn, open: &open}, nil
	}
	for port := range 3 * maxIdle {
		if w, err := request(c, "pods", "https:web:"+strconv.Itoa(1000+port), "proxy", "/"); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%v %+v", err, w)
		}
	}
	if n := open.Load(); n > maxIdle+5 { // the last ones may not be idle yet
		t.Errorf("%d connections are open", n)
	}
}
