package sim

import (
	"context"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
)

// provider is a client.Provider whose informers list and watch like the
// informers of a remote component. All clients are cluster admins.
type provider struct {
	config    *rest.Config
	informers *client.Informers
	typed     kubernetes.Interface
	untyped   dynamic.Interface
}

func newProvider(given *rest.Config, wrap func(http.RoundTripper) http.RoundTripper) (*provider, error) {
	config := rest.CopyConfig(given)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	config.ContentConfig = rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON}
	if *clocks { // the times in requests are moved
		config.ContentConfig = rest.ContentConfig{ContentType: runtime.ContentTypeJSON}
	}
	if wrap != nil {
		config.Transport = wrap(config.Transport)
	}
	p := &provider{config: config}
	var err error
	if p.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if p.untyped, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	p.informers = client.NewInformers(p.typed)
	return p, nil
}

// Run implements client.Provider.
func (p *provider) Run(ctx context.Context) error { return p.informers.Run(ctx) }

// As implements client.Provider.
func (p *provider) As(string, ...string) (*client.Client, error) {
	return &client.Client{Kubernetes: p.typed, Dynamic: p.untyped, Config: p.config, Informers: p.informers, Watch: p.watch}, nil
}

// WithTransport implements client.Provider.
func (p *provider) WithTransport(wrap func(http.RoundTripper) http.RoundTripper) (client.Provider, error) {
	return newProvider(p.config, wrap)
}

// watch implements client.Client.Watch for what kubelets watch.
func (p *provider) watch(gvr schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
	kinds := map[string]runtime.Object{"pods": &v1.Pod{}, "nodes": &v1.Node{}, "configmaps": &v1.ConfigMap{}, "secrets": &v1.Secret{}}
	kind := kinds[gvr.Resource]
	if kind == nil {
		panic(fmt.Sprintf("no kubelet of the simulation watches %s", gvr))
	}
	lw := cache.NewListWatchFromClient(p.typed.CoreV1().RESTClient(), gvr.Resource, namespace, selector)
	return cache.NewSharedIndexInformer(lw, kind, 0, cache.Indexers{})
}
