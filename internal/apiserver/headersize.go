package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/httpserver"
)

// The bounds of the headers of a request, without its URL. net/http bounds the bytes that
// come before the body by 1 MiB, and each value takes valueCost bytes besides its own: a
// megabyte of short ones becomes thirty, which a request holds until it is answered.
const (
	maxHeaderValues = 1024
	maxHeaderBytes  = 128 << 10
	valueCost       = 200
)

// headerCost returns how much memory the headers of a request take.
func headerCost(h http.Header) int {
	values, bytes := httpserver.HeaderSize(h)
	return values*valueCost + bytes
}

// checkHeaders returns the error of a request whose headers take too much memory.
func checkHeaders(h http.Header) error {
	if values, bytes := httpserver.HeaderSize(h); values <= maxHeaderValues && bytes <= maxHeaderBytes {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusRequestHeaderFieldsTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
		Message: fmt.Sprintf("Request Header Fields Too Large: limits are %d headers and %d bytes", maxHeaderValues, maxHeaderBytes),
	}}
}
