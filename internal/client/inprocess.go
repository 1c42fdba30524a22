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

// loopback is the user that the informers use for resources that are not in the watch
// cache.
const loopback = "system:apiserver"

// inProcessHost is the host of requests inside the process.
const inProcessHost = "http://coracle.internal"

// InProcess is a Provider for an API server in the same process:
//
//	writes, gets   typed client ─ protobuf ─► Handler, as the client's user
//	informers      watch cache ─ the same pointers ─► event handlers
type InProcess struct {
	handler   http.Handler
	withUser  func(context.Context, user.Info) context.Context
	views     *views
	informers *Informers
	// sharedInformers is true if another provider runs the informers.
	sharedInformers bool
	wrap            func(http.RoundTripper) http.RoundTripper // may be nil
}

// NewInProcess returns a provider for the API server's handler and watch cache. withUser
// adds the user to the context of a request.
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
	if p.sharedInformers {
		<-ctx.Done()
		return nil
	}
	return p.informers.Run(ctx)
}

// WithTransport implements Provider. The providers share their informers, which send no
// requests.
func (p *InProcess) WithTransport(wrap func(http.RoundTripper) http.RoundTripper) (Provider, error) {
	wrapped := *p
	wrapped.wrap, wrapped.sharedInformers = wrap, true
	return &wrapped, nil
}

// config returns a client configuration that needs no socket.
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
		// Warnings are intended for users, not for components.
		WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
			ContentType:        runtime.ContentTypeProtobuf,
		},
	}
}
