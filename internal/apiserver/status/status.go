// Package status makes the API's errors: errors with a metav1.Status that has
// upstream's code, reason and message.
package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"

	"github.com/coracle-io/coracle/internal/apiserver/errorlist"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// Of returns the Status of an error. An error without a Status is a 500 without a
// reason.
func Of(err error) *metav1.Status {
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

// FromStore converts an error of the store to an API error of a verb on an object.
// It returns nil for nil.
func FromStore(err error, verb string, gr schema.GroupResource, name string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return apierrors.NewNotFound(gr, name)
	case errors.Is(err, store.ErrExists):
		return apierrors.NewAlreadyExists(gr, name)
	case errors.Is(err, store.ErrConflict):
		return Modified(gr, name)
	case errors.Is(err, store.ErrFull):
		return apierrors.NewInternalError(err) // retrying does not help, but the reason does
	case errors.Is(err, store.ErrUnavailable):
		return apierrors.NewServerTimeout(gr, verb, 2)
	case errors.Is(err, watchcache.ErrRemoved):
		return NoSuchResource()
	}
	return err
}

// Modified is the conflict of a write with an earlier one.
func Modified(gr schema.GroupResource, name string) error {
	return apierrors.NewConflict(gr, name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

// NoSuchResource is the error of a path that is not served.
func NoSuchResource() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
}

// MethodNotAllowed is the error of a verb that a resource does not have.
func MethodNotAllowed() error {
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false)
}

// NotAcceptable is the error that lists the media types of answers.
func NotAcceptable(accepted []string) error {
	return NotAcceptableMessage("only the following media types are accepted: " + strings.Join(accepted, ", "))
}

// NotAcceptableMessage is a 406 with a message.
func NotAcceptableMessage(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: message,
	}}
}

// UnsupportedMediaType is the error that lists the media types of bodies.
func UnsupportedMediaType(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

// Unprocessable is the error of a well-formed body that cannot be applied.
func Unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// InvalidOptions is the error of invalid options of a request. It is nil if errs
// is empty.
func InvalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return errorlist.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// Future is the error of a resourceVersion that the server does not have yet.
func Future(wanted, current int64) error {
	return storage.NewTooLargeResourceVersionError(uint64(wanted), uint64(current), 1)
}

// ParseRevision parses a resourceVersion. "" and "0" are 0; invalid ones are
// BadRequest.
func ParseRevision(text string) (int64, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: resourceVersion: Invalid value: %q: %v", text, err))
	}
	return int64(n), nil
}

// Created is the Status of a successful action.
func Created() *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess, Code: http.StatusCreated,
	}
}
