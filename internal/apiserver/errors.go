package apiserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
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
	status := statusOf(err)
	if status.Code == http.StatusInternalServerError {
		klog.FromContext(q.ctx).Error(err, "Request failed", "verb", q.info.Verb, "uri", q.http.RequestURI)
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 && q.w.Header().Get("Retry-After") == "" {
		q.w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	if status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized {
		q.w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	o, _ := codec.Negotiate(q.http, codec.Accepted{Protobuf: true, CBOR: q.server.CBOR})
	if sendErr := q.sendObject(int(status.Code), status, o); sendErr != nil {
		http.Error(q.w, err.Error(), http.StatusInternalServerError)
	}
}

// statusOf turns an error into the Status that tells a client of it. An error
// that names no status is a 500 without a reason.
func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	var status metav1.Status
	switch {
	case errors.As(err, &api):
		status = api.Status()
	case errors.Is(err, context.DeadlineExceeded):
		status = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).Status()
	case errors.Is(err, context.Canceled):
		status = apierrors.NewTimeoutError("request was cancelled by the client", 0).Status()
	default:
		status = metav1.Status{Message: err.Error()}
	}
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	status.Kind, status.APIVersion = "Status", "v1"
	return &status
}

// storeError tells what an error of the store means for a verb on an object.
func storeError(err error, verb string, gr schema.GroupResource, name string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return apierrors.NewNotFound(gr, name)
	case errors.Is(err, store.ErrExists):
		return apierrors.NewAlreadyExists(gr, name)
	case errors.Is(err, store.ErrConflict):
		return errModified(gr, name)
	case errors.Is(err, store.ErrFull):
		return apierrors.NewInternalError(err) // trying again is of no use, and the reason is
	case errors.Is(err, store.ErrUnavailable):
		return apierrors.NewServerTimeout(gr, verb, 2)
	case errors.Is(err, watchcache.ErrRemoved):
		return errNoSuchResource()
	}
	return err
}

// errModified is the conflict of a write with one that came before it.
func errModified(gr schema.GroupResource, name string) error {
	return apierrors.NewConflict(gr, name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

func errNoSuchResource() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
}

func errMethodNotAllowed() error {
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
}

func errNotAcceptable(accepted []string) error {
	return errNotAcceptableMessage("only the following media types are accepted: " + strings.Join(accepted, ", "))
}

func errNotAcceptableMessage(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: message,
	}}
}

func errUnsupportedMediaType(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

// errFuture says that a client asked for a revision that is not known yet.
func errFuture(wanted, current int64) error {
	return storage.NewTooLargeResourceVersionError(uint64(wanted), uint64(current), 1)
}

func errExpired(message string) error { return apierrors.NewResourceExpired(message) }

func errBadRevision(text string, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: resourceVersion: Invalid value: %q: %v", text, err))
}

// parseRevision reads a resourceVersion; "" and "0" are 0.
func parseRevision(text string) (int64, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, errBadRevision(text, err)
	}
	return int64(n), nil
}

// Hijack lets handlers that upgrade the connection take it over.
func (w *recordingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	*w.code = http.StatusSwitchingProtocols
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
