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

	"github.com/coracle-io/coracle/internal/apiserver/recovery"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/supervise"
)

// backend is the server of one APIService. Its configuration is immutable: when
// the spec of the APIService changes, a new backend replaces it.
type backend struct {
	server    *Server
	name      string
	uid       types.UID
	spec      apiregistrationv1.APIServiceSpec
	transport *http.Transport
	proxied   http.RoundTripper // transport for proxied requests, as Config.Wrap wraps it
	cancel    context.CancelFunc
	done      chan struct{} // closed when run has returned
	checkNow  chan struct{} // buffered for one; requests a check

	// available is the stored condition of the APIService, so that all API
	// servers of a cluster agree.
	available  atomic.Bool
	discovered atomic.Pointer[apidiscoveryv2.APIVersionDiscovery] // nil until discovered

	// Only run's goroutine uses the following.
	tags      map[string]string // ETags of fetched documents, by path
	converted bool              // the version 3 document is converted from version 2
}

// How often a server is checked.
const (
	checkInterval = 30 * time.Second // while it is available
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
		transport: s.newTransport(&service.Spec), done: make(chan struct{}), checkNow: make(chan struct{}, 1), tags: map[string]string{},
	}
	b.proxied = b.transport
	if s.Wrap != nil {
		b.proxied = s.Wrap(b.transport)
	}
	s.wait.Go(ctx, func() {
		defer close(b.done)
		supervise.FailOnPanic(ctx, func() { b.run(ctx) })
		b.transport.CloseIdleConnections()
	})
	return b
}

// stop ends a backend and removes its documents.
func (s *Server) stop(b *backend) {
	b.cancel()
	<-b.done
	if s.Documents != nil {
		b.removeDocuments()
	}
}

// newTransport returns a TLS transport for the server of an APIService. It is
// never closed as a whole: its connections end when they are idle or closed by
// the server.
func (s *Server) newTransport(spec *apiregistrationv1.APIServiceSpec) *http.Transport {
	dial := s.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	config := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           spec.Service.Name + "." + spec.Service.Namespace + ".svc",
		InsecureSkipVerify:   spec.InsecureSkipTLSVerify, //nolint:gosec // the APIService requests it
		GetClientCertificate: s.ClientCertificate,
	}
	if len(spec.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(spec.CABundle)
	}
	return &http.Transport{
		DialContext: dial, TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: httpserver.MaxAnswerHeaderBytes,
		// Pings detect a server that vanished, also under watches.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// serves reports whether the backend is up to date with an APIService.
func (b *backend) serves(service *apiregistrationv1.APIService) bool {
	return b.uid == service.UID && equality.Semantic.DeepEqual(b.spec, service.Spec)
}

func (b *backend) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: b.spec.Group, Version: b.spec.Version}
}

// description returns the discovery of the group version.
func (b *backend) description() *apidiscoveryv2.APIVersionDiscovery {
	if discovered := b.discovered.Load(); discovered != nil {
		return discovered
	}
	return &apidiscoveryv2.APIVersionDiscovery{Version: b.spec.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessStale}
}

// checkSoon requests a check before it is due.
func (b *backend) checkSoon() {
	select {
	case b.checkNow <- struct{}{}:
	default:
	}
}

// run checks the server, writes the APIService's condition, and updates
// discovery and OpenAPI, until ctx ends.
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
			_ = recovery.Call(ctx, "refreshing APIService "+b.name, func() error { b.refresh(ctx); return nil }) // a panic leaves the discovery as it was
		} else {
			log.V(2).Info("APIService is not available", "apiService", b.name, "reason", condition.Reason, "message", condition.Message)
			b.clearDescription()
			wait, retry = retry, min(2*retry, lastRetry)
		}
		select {
		case <-ctx.Done():
		case <-b.checkNow:
		case <-b.server.Clock.After(wait):
		}
	}
}
