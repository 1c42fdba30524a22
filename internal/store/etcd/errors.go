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

// translate turns etcd's errors into the store's. The caller's own deadline
// stays what it is; whatever else kept etcd from answering is ErrUnavailable.
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
		return noRoom{err}
	case errors.Is(err, syscall.ENOSPC):
		return noRoom{err}
	}
	if unavailable(err) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// noRoom is a write that was refused for want of room, in the words of who
// refused it.
type noRoom struct{ error }

// Is makes it ErrFull and ErrUnavailable.
func (noRoom) Is(target error) bool { return target == store.ErrFull || target == store.ErrUnavailable }

// Unwrap returns the reason.
func (e noRoom) Unwrap() error { return e.error }

func unavailable(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true // not the caller's, so the client's or the server's own
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
