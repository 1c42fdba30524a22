package aggregator

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/httpserver"
)

// ServeHTTP proxies a request to the server as the user in its context, until
// its context ends. It rejects redirects.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, ok := apirequest.UserFrom(r.Context())
	switch {
	case !b.available.Load():
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	case !ok:
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	location, err := b.server.resolve(b.spec.Service)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Cannot find the server of an APIService", "apiService", b.name)
		b.checkSoon()
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	location.Path, location.RawPath, location.RawQuery = r.URL.Path, r.URL.RawPath, r.URL.RawQuery
	request, cancel := streamproxy.NewRequestForProxy(location, r)
	defer cancel()
	if id := w.Header().Get("Audit-Id"); id != "" {
		request.Header.Set("Audit-Id", id)
	}
	// The handler itself dials an upgraded connection. It uses the transport's
	// TLS but not the round tripper around it.
	upgrade := httpstream.IsUpgradeRequest(r)
	var roundTripper http.RoundTripper
	if upgrade {
		transport.SetAuthProxyHeaders(request, user.GetName(), b.server.uidOf(user), user.GetGroups(), user.GetExtra())
		location, roundTripper = httpserver.Upgrading(location, b.transport)
	} else {
		roundTripper = replacing{w.Header(), transport.NewAuthProxyRoundTripper(user.GetName(), b.server.uidOf(user), user.GetGroups(), user.GetExtra(), b.proxied)}
	}
	handler := proxy.NewUpgradeAwareHandler(location, roundTripper, true, upgrade, failure{b})
	handler.RejectForwardingRedirects = true
	handler.ServeHTTP(w, request)
}

// uidOf returns the UID of a user for a server, or "" if it gets none.
func (s *Server) uidOf(u user.Info) string {
	if s.WithoutUIDs {
		return ""
	}
	return u.GetUID()
}

// replacing removes response headers that are already set and that the server's
// response has too.
type replacing struct {
	set http.Header
	http.RoundTripper
}

func (t replacing) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		for name := range response.Header {
			t.set.Del(name)
		}
	}
	return response, err
}

// failure responds to requests that did not reach the server.
type failure struct{ *backend }

// Error implements proxy.ErrorResponder.
func (f failure) Error(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		f.checkSoon()
	}
	if !errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	status := apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).Status()
	body, encodeErr := codec.Encode(&status, codec.JSON)
	if encodeErr != nil {
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
		return
	}
	w.Header().Set("Content-Type", codec.JSON.String())
	w.WriteHeader(http.StatusGatewayTimeout)
	_, _ = w.Write(body) // the client may be gone
}
