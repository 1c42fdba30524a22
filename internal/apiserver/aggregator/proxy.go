package aggregator

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
)

// ServeHTTP passes a request on to the server, on behalf of the user in its
// context and for as long as its context lasts. Redirects are not passed back.
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
	// An upgraded connection is dialled by the handler, which knows the
	// transport's TLS but not what is wrapped around it.
	upgrade := httpstream.IsUpgradeRequest(r)
	var way http.RoundTripper = b.transport
	if upgrade {
		transport.SetAuthProxyHeaders(request, user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra())
	} else {
		way = replacing{w.Header(), transport.NewAuthProxyRoundTripper(user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra(), b.transport)}
	}
	handler := proxy.NewUpgradeAwareHandler(location, way, true, upgrade, failure{b})
	handler.RejectForwardingRedirects = true
	handler.ServeHTTP(w, request)
}

// replacing lets the headers of an answer take the place of those that are
// set already.
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

// failure answers requests that did not reach the server.
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
	_, _ = w.Write(body) // a client that has gone needs no answer
}
