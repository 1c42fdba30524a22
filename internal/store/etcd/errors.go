package etcd

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coracle-io/coracle/internal/store"
)

// translate converts etcd's errors to the errors of package store. It keeps an
// error of the caller's context. Any other reason why etcd did not answer becomes
// ErrUnavailable.
func (s *Store) translate(ctx context.Context, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	err = rpctypes.Error(err)
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return store.ErrFutureRevision
	case errors.Is(err, rpctypes.ErrNoSpace):
		s.full()
		return noSpaceError{err}
	case errors.Is(err, syscall.ENOSPC):
		return noSpaceError{err}
	}
	if unavailable(err) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// noSpaceError is the error of a write that was refused because there is no space. Its
// message is the message of the cause.
type noSpaceError struct{ error }

// Is reports whether target is ErrFull or ErrUnavailable.
func (noSpaceError) Is(target error) bool {
	return target == store.ErrFull || target == store.ErrUnavailable
}

// Unwrap returns the reason.
func (e noSpaceError) Unwrap() error { return e.error }

func unavailable(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true // the caller's context is not done: a timeout of the client or server
	}
	code := codes.Unknown
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		code = known.Code()
	} else if st, ok := status.FromError(err); ok {
		code = st.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted:
		return true
	}
	return false
}
