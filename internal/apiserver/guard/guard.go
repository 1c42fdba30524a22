// Package guard keeps a panic over one piece of work, mostly one object that a
// user wrote, from ending the part of the API server that does the work for
// everybody.
package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Call calls f and returns its error. A panic is logged with its stack, counted
// for the component that ctx belongs to, and an error.
func Call(ctx context.Context, what string, f func() error) error {
	err := supervise.Call(f)
	if panicked := (*supervise.Panic)(nil); errors.As(err, &panicked) {
		err = fmt.Errorf("%s: %w", what, err)
		supervise.Note(ctx, err)
	}
	return err
}
