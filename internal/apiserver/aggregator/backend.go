package aggregator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-io/coracle/internal/apiserver/guard"
	"github.com/coracle-io/coracle/internal/supervise"
)

// backend is the server behind one APIService. It never changes; another
// takes its place when the APIService does.
type backend struct {
	server    *Server
	name      string
	uid       types.UID
	spec      apiregistrationv1.APIServiceSpec
	transport *http.Transport
	cancel    context.CancelFunc
	done      chan struct{} // closed when run has ended
	poke      chan struct{} // has room for one; asks for a check now

	// available is what the stored APIService says, so that all API servers
	// of a cluster say the same.
	available atomic.Bool
	found     atomic.Pointer[apidiscoveryv2.APIVersionDiscovery] // nil as long as nothing has been found

	// The following belong to run.
	tags      map[string]string // ETags of what was fetched, by path
	converted bool              // the version 3 document is made of the server's version 2
}

// How often a server is looked at.
const (
	checkInterval = 30 * time.Second // as long as it answers
	firstRetry    = 100 * time.Millisecond
	lastRetry     = 5 * time.Second
)

func (s *Server) start(ctx context.Context, service *apiregistrationv1.APIService) *backend {
	if !s.watching {
		s.watching = true
		s.watchServices(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &backend{
		server: s, name: service.Name, uid: service.UID, spec: service.Spec, cancel: cancel,
		transport: s.newTransport(&service.Spec), done: make(chan struct{}), poke: make(chan struct{}, 1), tags: map[string]string{},
	}
	s.wait.Go(ctx, func() {
		defer close(b.done)
		supervise.Guard(ctx, func() { b.run(ctx) })
		b.transport.CloseIdleConnections()
	})
	return b
}

// stop ends a backend and forgets its documents.
func (s *Server) stop(b *backend) {
	b.cancel()
	<-b.done
	if s.Documents != nil {
		b.withdraw()
	}
}

// newTransport speaks TLS with the servers of an APIService. It is closed by
// nobody: its connections end when they are idle or the other side is gone.
func (s *Server) newTransport(spec *apiregistrationv1.APIServiceSpec) *http.Transport {
	dial := s.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	config := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           spec.Service.Name + "." + spec.Service.Namespace + ".svc",
		InsecureSkipVerify:   spec.InsecureSkipTLSVerify, //nolint:gosec // the APIService asks for it
		GetClientCertificate: s.ClientCertificate,
	}
	if len(spec.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(spec.CABundle)
	}
	return &http.Transport{
		DialContext: dial, TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
		// A server that vanished without a word is noticed under its watches.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// serves says whether the backend is the one that an APIService describes.
func (b *backend) serves(service *apiregistrationv1.APIService) bool {
	return b.uid == service.UID && equality.Semantic.DeepEqual(b.spec, service.Spec)
}

func (b *backend) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: b.spec.Group, Version: b.spec.Version}
}

// described is what discovery says of the group version.
func (b *backend) described() *apidiscoveryv2.APIVersionDiscovery {
	if found := b.found.Load(); found != nil {
		return found
	}
	return &apidiscoveryv2.APIVersionDiscovery{Version: b.spec.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessStale}
}

// checkSoon asks for a check before it is due.
func (b *backend) checkSoon() {
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

// run looks at the server, writes what it finds into the APIService and keeps
// what discovery and OpenAPI know of it, until ctx ends.
func (b *backend) run(ctx context.Context) {
	log := klog.FromContext(ctx)
	retry := firstRetry
	for ctx.Err() == nil {
		condition := b.check(ctx)
		if ctx.Err() != nil {
			return
		}
		if err := b.server.report(ctx, b.name, condition, b.serves); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot write the status of an APIService yet", "apiService", b.name)
		}
		wait := checkInterval
		if condition.Status == apiregistrationv1.ConditionTrue {
			retry = firstRetry
			_ = guard.Call(ctx, "learning of APIService "+b.name, func() error { b.learn(ctx); return nil }) // what it says is not known then
		} else {
			log.V(2).Info("APIService is not available", "apiService", b.name, "reason", condition.Reason, "message", condition.Message)
			b.forget()
			wait, retry = retry, min(2*retry, lastRetry)
		}
		select {
		case <-ctx.Done():
		case <-b.poke:
		case <-b.server.Clock.After(wait):
		}
	}
}
