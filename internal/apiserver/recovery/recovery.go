// Package recovery confines a panic to one piece of work, usually one object
// that a user wrote, so that it does not end the part of the API server that
// works for all users.
package recovery

import (
	"context"
	"errors"
	"fmt"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Call calls f and returns its error. It turns a panic of f into an error,
// whose message begins with what. It logs the panic with its stack and counts it
// for the supervised component that ctx belongs to.
func Call(ctx context.Context, what string, f func() error) error {
	err := supervise.Call(f)
	if panicked := (*supervise.Panic)(nil); errors.As(err, &panicked) {
		err = fmt.Errorf("%s: %w", what, err)
		supervise.RecordPanic(ctx, err)
	}
	return err
}
