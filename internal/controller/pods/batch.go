package pods

import (
	"context"
	"errors"

	"github.com/coracle-io/coracle/internal/supervise"
)

// SlowStart calls f count times in batches of 1, 2, 4, ... at once and stops
// after the first batch in which a call failed, so that a thousand creations
// that all run into one quota cost one request. It returns how many calls
// succeeded and the first error. A panic of f is an error.
func SlowStart(ctx context.Context, count int, f func(context.Context) error) (succeeded int, err error) {
	for batch := 1; succeeded < count; batch *= 2 {
		for _, result := range supervise.Each(min(batch, count-succeeded), func(int) error { return f(ctx) }) {
			if result == nil {
				succeeded++
			} else if err == nil {
				err = result
			}
		}
		if err != nil {
			return succeeded, err
		}
	}
	return succeeded, nil
}

// All calls f for every item at once and returns all errors joined, a panic
// of f among them.
func All[T any](items []T, f func(T) error) error {
	return errors.Join(supervise.Each(len(items), func(i int) error { return f(items[i]) })...)
}
