package apiserver

import (
	"errors"
	"net/http"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/status"
)

// The answers that are no Status, as upstream's are not.
var (
	errUnknownPath     = errors.New("404 page not found")
	errTooManyRequests = errors.New("Too many requests, please try again later.") //nolint:staticcheck // upstream's sentence
)

// fail answers with an error as a Status.
func (q *request) fail(err error) {
	if q.code != 0 {
		return
	}
	if errors.Is(err, errUnknownPath) {
		q.code = http.StatusNotFound
		http.Error(q.w, err.Error(), q.code)
		return
	}
	if errors.Is(err, errTooManyRequests) {
		q.code = http.StatusTooManyRequests
		http.Error(q.w, err.Error(), q.code)
		return
	}
	failure := status.Of(err)
	if failure.Code == http.StatusInternalServerError {
		klog.FromContext(q.Context).Error(err, "Request failed", "verb", q.Info.Verb, "uri", q.http.RequestURI)
	}
	if failure.Details != nil && failure.Details.RetryAfterSeconds > 0 && q.w.Header().Get("Retry-After") == "" {
		q.w.Header().Set("Retry-After", strconv.Itoa(int(failure.Details.RetryAfterSeconds)))
	}
	if failure.Code == http.StatusForbidden || failure.Code == http.StatusUnauthorized {
		q.w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	o, _ := codec.Negotiate(q.http, codec.Accepted{Protobuf: true, CBOR: q.server.CBOR})
	if sendErr := (output{q, o}).object(int(failure.Code), failure); sendErr != nil {
		http.Error(q.w, err.Error(), http.StatusInternalServerError)
	}
}
