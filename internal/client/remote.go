package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/connrotation"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Remote is a Provider for an API server that is reached by HTTPS.
type Remote struct {
	config    *rest.Config
	own       *Client
	informers *Informers
	dialer    *dialer
	wrap      func(http.RoundTripper) http.RoundTripper // may be nil
}

// NewRemote returns a provider with the credentials of config.
func NewRemote(config *rest.Config) (*Remote, error) {
	d := newDialer()
	return newRemote(forComponents(config, d), d, nil)
}

// NewRotating returns a provider that authenticates with the certificate that
// newest returns when it opens a connection. Connections wait until newest
// returns. closeConnections makes all later requests use the newest.
func NewRotating(config *rest.Config, newest func(context.Context) (*tls.Certificate, error)) (r *Remote, closeConnections func(), err error) {
	secured, err := rest.TLSConfigFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, nil, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	if secured == nil {
		secured = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secured.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) { return newest(r.Context()) }
	d := newDialer()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if _, err := newest(ctx); err != nil {
			return nil, err
		}
		return d.dial(ctx, network, address)
	}
	rotating := rest.AnonymousClientConfig(config)
	rotating.UserAgent = config.UserAgent
	rotating.TLSClientConfig = rest.TLSClientConfig{} // in Transport
	if !strings.Contains(rotating.Host, "://") {
		rotating.Host = "https://" + rotating.Host
	}
	rotating.Transport = utilnet.SetTransportDefaults(&http.Transport{Proxy: config.Proxy, TLSClientConfig: secured, DialContext: dial})
	r, err = newRemote(forComponents(rotating, d), d, nil)
	return r, d.opened.CloseAll, err
}

// CloseConnections closes the connections of all clients, and of those of providers that
// WithTransport has returned. Watches and requests in progress fail, and later ones open
// others: after the address of this machine has changed, nothing arrives by the former
// ones, which would be noticed after most of a minute.
func (r *Remote) CloseConnections() { r.dialer.opened.CloseAll() }

// Kubernetes returns a typed client with the provider's credentials.
func (r *Remote) Kubernetes() kubernetes.Interface { return r.own.Kubernetes }

func newRemote(config *rest.Config, d *dialer, wrap func(http.RoundTripper) http.RoundTripper) (*Remote, error) {
	r := &Remote{config: config, dialer: d, wrap: wrap}
	own := config
	if wrap != nil {
		own = rest.CopyConfig(config)
		own.Wrap(wrap)
	}
	var err error
	if r.own, err = r.client(own); err != nil {
		return nil, err
	}
	r.informers = NewInformers(r.own.Kubernetes)
	r.own.Informers = r.informers
	return r, nil
}

// Run implements Provider. When ctx is done, connections no longer wait for an API server
// that refuses them.
func (r *Remote) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { r.dialer.stopping.Store(true) })
	defer stop()
	return r.informers.Run(ctx)
}

// WithTransport implements Provider. The returned provider has its own informers.
func (r *Remote) WithTransport(wrap func(http.RoundTripper) http.RoundTripper) (Provider, error) {
	return newRemote(r.config, r.dialer, wrap)
}

// forComponents returns a configuration that uses protobuf and has no client-side rate
// limit, because the server limits requests by priority and fairness.
func forComponents(config *rest.Config, d *dialer) *rest.Config {
	c := rest.CopyConfig(config)
	c.WarningHandler = rest.NoWarnings{}
	c.QPS = -1
	if c.Dial == nil {
		c.Dial = d.dial
	}
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return c
}

// A server that is being started or restarted refuses connections for a moment, and a
// machine whose address changes has no route to it. The dialer retries for up to
// dialTimeout, so that requests in the meantime do not fail or back off.
const (
	dialTimeout      = 10 * time.Second
	initialDialDelay = 5 * time.Millisecond
	maxDialDelay     = 100 * time.Millisecond
)

// dialer retries connections that are refused, or have no route, and knows those that are
// open.
type dialer struct {
	opened *connrotation.ConnectionTracker
	// stopping is set when the component stops. Its last requests, such as the release of
	// its lease, do not wait for a server that may be stopping, too.
	stopping atomic.Bool
}

func newDialer() *dialer { return &dialer{opened: connrotation.NewConnectionTracker()} }

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	began := time.Now()
	for wait := initialDialDelay; ; wait = min(2*wait, maxDialDelay) {
		connection, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return d.opened.Track(connection), nil
		}
		passes := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH)
		if !passes || time.Since(began) > dialTimeout || d.stopping.Load() {
			return nil, err
		}
		if !supervise.Pause(ctx, wait) {
			return nil, err
		}
	}
}

// As implements Provider.
func (r *Remote) As(name string, _ ...string) (*Client, error) {
	namespace, account, err := serviceaccount.SplitUsername(name)
	if err != nil {
		return r.own, nil
	}
	config := rest.AnonymousClientConfig(r.config)
	config.UserAgent = userAgent(name)
	tokens := newTokenSource(r.own.Kubernetes, namespace, account)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &tokenTransport{tokens: tokens, base: base} })
	if r.wrap != nil {
		config.Wrap(r.wrap)
	}
	return r.client(config)
}

func (r *Remote) client(config *rest.Config) (*Client, error) {
	connections, err := rest.HTTPClientFor(config) // shared by all clients of the identity
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	typed, err := kubernetes.NewForConfigAndClient(config, connections)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	untyped, err := dynamic.NewForConfigAndClient(config, connections)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", config.Host, err)
	}
	return &Client{
		Kubernetes: typed,
		Dynamic:    untyped,
		Config:     config,
		Informers:  r.informers,
		Watch: func(gvr schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
			if informer, ok := typedInformer(config, connections, gvr, namespace, selector); ok {
				return informer
			}
			return dynamicInformer(untyped, gvr, namespace, selector)
		},
	}, nil
}

// typedInformer returns an informer of typed objects. ok is false for kinds that client-go
// does not know.
func typedInformer(config *rest.Config, connections *http.Client, gvr schema.GroupVersionResource, namespace string, selector fields.Selector) (informer cache.SharedIndexInformer, ok bool) {
	example, ok := builtIn(gvr)
	if !ok {
		return nil, false
	}
	c := rest.CopyConfig(config)
	gv := gvr.GroupVersion()
	c.GroupVersion, c.APIPath = &gv, "/apis"
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	rests, err := rest.RESTClientForConfigAndClient(c, connections)
	if err != nil {
		return nil, false // the same configuration made the typed client
	}
	lw := cache.NewFilteredListWatchFromClient(rests, gvr.Resource, namespace, func(o *metav1.ListOptions) { withFieldSelector(selector)(o) })
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	informer = cache.NewSharedIndexInformer(lw, example, 0, indexers)
	return informer, informer.SetTransform(trim) == nil
}

// trim removes from an object who has set which of its fields. No component asks for that,
// and it is often a third of the object.
func trim(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// builtIn returns a new object of the Go type that client-go has for a resource.
func builtIn(gvr schema.GroupVersionResource) (runtime.Object, bool) {
	for kind := range scheme.Scheme.KnownTypes(gvr.GroupVersion()) {
		gvk := gvr.GroupVersion().WithKind(kind)
		if plural, _ := meta.UnsafeGuessKindToResource(gvk); plural != gvr {
			continue
		}
		obj, err := scheme.Scheme.New(gvk)
		return obj, err == nil
	}
	return nil, false
}
