package client

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// loopback is the identity of the informers' fallback, for resources that the
// watch cache does not hold.
const loopback = "system:apiserver"

// inProcessHost is the address that requests inside the process carry.
const inProcessHost = "http://coracle.internal"

// InProcess hands out clients of an API server in the same process:
//
//	writes, gets   typed client ─ protobuf ─► Handler, as the client's user
//	informers      watch cache ─ the same pointers ─► event handlers
type InProcess struct {
	handler   http.Handler
	withUser  func(context.Context, user.Info) context.Context
	views     *views
	informers *Informers
	borrowed  bool                                      // the informers are those of another provider, which runs them
	wrap      func(http.RoundTripper) http.RoundTripper // nil for none
}

// NewInProcess makes a provider over the API server's handler and its cache.
// withUser tells the handler who calls, by the request's context.
func NewInProcess(handler http.Handler, cache *watchcache.Cache, withUser func(context.Context, user.Info) context.Context) (*InProcess, error) {
	p := &InProcess{handler: handler, withUser: withUser, views: newViews(cache)}
	fallback, err := kubernetes.NewForConfig(p.config(loopback, user.SystemPrivilegedGroup))
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", loopback, err)
	}
	p.informers = newInformers(fallback, p.views)
	return p, nil
}

// As implements Provider.
func (p *InProcess) As(name string, groups ...string) (*Client, error) {
	config := p.config(name, groups...)
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	return &Client{
		Kubernetes: typed,
		Dynamic:    untyped,
		Config:     config,
		Informers:  p.informers,
		Watch:      p.views.watcher(untyped),
	}, nil
}

// Run implements Provider.
func (p *InProcess) Run(ctx context.Context) error {
	if p.borrowed {
		<-ctx.Done()
		return nil
	}
	return p.informers.Run(ctx)
}

// Through implements Provider. The informers, which make no requests, stay
// the same.
func (p *InProcess) Through(wrap func(http.RoundTripper) http.RoundTripper) (Provider, error) {
	through := *p
	through.wrap, through.borrowed = wrap, true
	return &through, nil
}

// config makes a client configuration that needs no socket.
func (p *InProcess) config(name string, groups ...string) *rest.Config {
	var transport http.RoundTripper = &handlerTransport{handler: p.handler, withUser: p.withUser, user: identity(name, groups)}
	if p.wrap != nil {
		transport = p.wrap(transport)
	}
	return &rest.Config{
		Host:      inProcessHost,
		UserAgent: userAgent(name),
		QPS:       -1,
		Transport: transport,
		// warnings are for the authors of manifests, and components are none
		WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
			ContentType:        runtime.ContentTypeProtobuf,
		},
	}
}
