package apiserver

import (
	"errors"
	"net/http"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/status"
)

// Errors that are answered as plain text, as upstream does, not as a Status.
var (
	errUnknownPath     = errors.New("404 page not found")
	errTooManyRequests = errors.New("Too many requests, please try again later.") //nolint:staticcheck // upstream's sentence
)

// fail answers with err as a Status, unless the answer has begun.
func (q *request) fail(err error) {
	if q.response.code != 0 {
		return
	}
	if errors.Is(err, errUnknownPath) {
		q.response.code = http.StatusNotFound
		http.Error(q.response.w, err.Error(), q.response.code)
		return
	}
	q.response.dropped = errors.Is(err, errTooManyRequests) || errors.Is(err, errOutOfMemory)
	if errors.Is(err, errTooManyRequests) {
		q.response.code = http.StatusTooManyRequests
		q.response.w.Header().Set("Retry-After", "1")
		http.Error(q.response.w, err.Error(), q.response.code)
		return
	}
	failure := status.Of(err)
	if failure.Code == http.StatusInternalServerError {
		klog.FromContext(q.call.Context).Error(err, "Request failed", "verb", q.call.Info.Verb, "uri", q.http.RequestURI)
	}
	if failure.Details != nil && failure.Details.RetryAfterSeconds > 0 && q.response.w.Header().Get("Retry-After") == "" {
		q.response.w.Header().Set("Retry-After", strconv.Itoa(int(failure.Details.RetryAfterSeconds)))
	}
	if failure.Code == http.StatusForbidden || failure.Code == http.StatusUnauthorized {
		q.response.w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	o, _ := codec.Negotiate(q.http, codec.Accepted{Protobuf: true, CBOR: q.server.cbor})
	if sendErr := (output{o, q}).object(int(failure.Code), failure); sendErr != nil {
		http.Error(q.response.w, err.Error(), http.StatusInternalServerError)
	}
}
