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
		return fmt.Errorf("%w: %w: %w", store.ErrFull, store.ErrUnavailable, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: %w: %w", store.ErrFull, store.ErrUnavailable, err)
	}
	if unavailable(err) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

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
