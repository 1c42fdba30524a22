package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/httpserver"
)

// The bounds of what precedes the body of a request. net/http bounds all of it by 1 MiB,
// and each header takes valueCost bytes besides its own: a megabyte of short ones becomes
// thirty, which a request holds until it is answered.
const (
	maxHeaderValues = 1024
	maxPath         = 64 << 10
	valueCost       = 200
	pathCost        = 12 // of a byte of the path, whose elements are kept
	// largeHead is the cost from which it counts for the tenant.
	largeHead = 32 << 10
)

// checkHead returns how much memory the URL and the headers of a request take until it
// is answered, or the error of a request for which that is too much.
func checkHead(r *http.Request) (cost int, err error) {
	if len(r.URL.Path) > maxPath {
		return 0, tooLarge(http.StatusRequestURITooLong, "limit of the path is %d bytes", maxPath)
	}
	values, bytes := httpserver.HeaderSize(r.Header)
	if values > maxHeaderValues {
		return 0, tooLarge(http.StatusRequestHeaderFieldsTooLarge, "limit is %d headers", maxHeaderValues)
	}
	return values*valueCost + bytes + len(r.URL.Path)*pathCost + len(r.URL.RawQuery)*selectorCost, nil
}

func tooLarge(code int32, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonRequestEntityTooLarge,
		Message: http.StatusText(int(code)) + ": " + fmt.Sprintf(format, args...),
	}}
}

// retainHead counts the URL and the headers of the request for its tenant until it is
// answered, if they are large. It returns an error if the tenant has too much.
func (h *holdings) retainHead() error {
	if h.head < largeHead {
		return nil
	}
	unread, ok := h.server.memory.Retain(h.memoryTenant(), int64(h.head))
	if !ok {
		return errOutOfMemory
	}
	h.unread = unread
	return nil
}
