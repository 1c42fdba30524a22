// Package client gives components their view of the API. A component works
// on a Client and never knows whether the API server is in its own process
// (inprocess.go: no socket, reads share the watch cache's objects) or at the
// other end of HTTPS (remote.go).
package client

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Client is one identity's access to the API.
type Client struct {
	// Kubernetes reads and writes through the whole request path
	// (authentication, authorization, admission, validation).
	Kubernetes kubernetes.Interface
	// Dynamic is Kubernetes for kinds known only at run time.
	Dynamic dynamic.Interface
	// Config builds further clients of the same identity.
	Config *rest.Config
	// Informers are shared by every component of the process. Objects they
	// hand out are shared too and must never be changed. An informer runs from
	// when it is first asked for until the provider ends: its users wait for
	// it to sync, and Subscribe to it for as long as they run.
	Informers informers.SharedInformerFactory
	// Watch makes an informer of one component's own, not shared and not
	// started, over the objects of one resource that the field selector
	// matches, in one namespace ("" is all).
	Watch func(resource schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer
}

// Provider hands out Clients. The Informers of all of them are one factory,
// whose life is the provider's and not that of any component.
type Provider interface {
	// Run keeps the informers running until ctx ends. Whoever makes a provider
	// runs it. Of a provider whose informers are another's it only waits.
	Run(ctx context.Context) error
	// As returns a client with the given user name and groups. For a remote
	// provider, which has the credentials of one user, a service account's
	// name is impersonated by a token requested for it, and any other name
	// returns the provider's own identity.
	As(user string, groups ...string) (*Client, error)
	// Through returns a provider of clients whose requests go through what
	// wrap makes of their transport.
	Through(wrap func(http.RoundTripper) http.RoundTripper) (Provider, error)
}
