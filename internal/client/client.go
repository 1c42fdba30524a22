// Package client provides access to the API for components. A component uses a
// Client, whether the API server is in the same process (inprocess.go, which
// needs no socket and shares the watch cache's objects) or remote (remote.go,
// which uses HTTPS).
package client

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Client is the access to the API with one identity.
type Client struct {
	// Kubernetes is the typed client. Its requests pass through authentication,
	// authorization, admission and validation.
	Kubernetes kubernetes.Interface
	// Dynamic is a client for kinds that are known only at run time.
	Dynamic dynamic.Interface
	// Config can be used to create further clients with the same identity.
	Config *rest.Config
	// Informers are shared by all components of the process. Their objects are
	// shared, too, and must not be changed. An informer starts when it is first
	// requested and stops when the provider does. Components wait for it to sync
	// and add handlers with Subscribe.
	Informers informers.SharedInformerFactory
	// Watch returns an unshared informer that has not been started. It contains
	// the objects of a resource in a namespace ("" means all) that match a field
	// selector.
	Watch func(resource schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer
}

// WatchReduced is Watch. To save memory, the informer keeps what reduce returns of
// each object, unless the objects are shared with others of the process.
func (c *Client) WatchReduced(resource schema.GroupVersionResource, namespace string, selector fields.Selector, reduce cache.TransformFunc) cache.SharedIndexInformer {
	informer := c.Watch(resource, namespace, selector)
	_ = informer.SetTransform(reduce) // an error: the objects are shared
	return informer
}

// Identity returns the metadata that reduced objects keep at least: informers and their
// users tell objects apart by it.
func Identity(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// Provider returns Clients. All of them share the same Informers, which run as
// long as the provider.
type Provider interface {
	// Run runs the informers until ctx is done. The creator of a provider must
	// call it. If the provider uses the informers of another one, Run only waits.
	Run(ctx context.Context) error
	// As returns a client with a user name and groups. A remote provider has the
	// credentials of one user: for a service account, it requests a token; for any
	// other name, it returns a client with its own identity.
	As(user string, groups ...string) (*Client, error)
	// WithTransport returns a provider whose clients use the transport that wrap
	// returns.
	WithTransport(wrap func(http.RoundTripper) http.RoundTripper) (Provider, error)
}
