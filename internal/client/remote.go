package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Remote hands out clients of an API server at the other end of HTTPS.
type Remote struct {
	config    *rest.Config
	own       *Client
	informers *Informers
	dialer    *dialer
	wrap      func(http.RoundTripper) http.RoundTripper // nil for none
}

// NewRemote makes a provider with the credentials of config.
func NewRemote(config *rest.Config) (*Remote, error) {
	d := &dialer{}
	return newRemote(forComponents(config, d), d, nil)
}

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

// Run implements Provider. Once ctx has ended, nobody waits for the API server
// any more.
func (r *Remote) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { r.dialer.hurried.Store(true) })
	defer stop()
	return r.informers.Run(ctx)
}

// Through implements Provider. It has informers of its own, which its Run runs.
func (r *Remote) Through(wrap func(http.RoundTripper) http.RoundTripper) (Provider, error) {
	return newRemote(r.config, r.dialer, wrap)
}

// forComponents speaks protobuf and leaves limits to the server's fairness.
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

// A server that was just started, or is being started again, refuses
// connections for a moment. A connection waits for it, so that nothing that is
// asked of it in the meantime fails, is logged or backs off.
const (
	dialPatience = 10 * time.Second
	shortestWait = 5 * time.Millisecond
	longestWait  = 100 * time.Millisecond
)

// dialer connects, and tries again while nobody listens.
type dialer struct {
	// hurried is set when the component ends: what it says last, as that it
	// gives its lease up, is not worth waiting for a server that ends with it.
	hurried atomic.Bool
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	began := time.Now()
	for wait := shortestWait; ; wait = min(2*wait, longestWait) {
		connection, err := dialer.DialContext(ctx, network, address)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) > dialPatience || d.hurried.Load() {
			return connection, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
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
	connections, err := rest.HTTPClientFor(config) // one pool for all of the client
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

// typedInformer makes an informer of a built-in kind's own type. ok is false
// for kinds that client-go does not know.
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
	lw := cache.NewFilteredListWatchFromClient(rests, gvr.Resource, namespace, func(o *metav1.ListOptions) { selecting(selector)(o) })
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return cache.NewSharedIndexInformer(lw, example, 0, indexers), true
}

// builtIn finds the Go type of a resource among client-go's.
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
