package pods

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// SlowStart calls f count times in batches of 1, 2, 4, ... at once and stops
// after the first batch in which a call failed, so that a thousand creations
// that all run into one quota cost one request. It returns how many calls
// succeeded and the first error.
func SlowStart(ctx context.Context, count int, f func(context.Context) error) (succeeded int, err error) {
	for batch := 1; succeeded < count; batch *= 2 {
		n := min(batch, count-succeeded)
		results := make([]error, n)
		var group errgroup.Group
		for i := range n {
			group.Go(func() error {
				results[i] = f(ctx)
				return nil
			})
		}
		_ = group.Wait()
		for _, r := range results {
			if r == nil {
				succeeded++
			} else if err == nil {
				err = r
			}
		}
		if err != nil {
			return succeeded, err
		}
	}
	return succeeded, nil
}

// All calls f for every item at once and returns all errors joined.
func All[T any](items []T, f func(T) error) error {
	errs := make([]error, len(items))
	var group errgroup.Group
	for i, item := range items {
		group.Go(func() error {
			errs[i] = f(item)
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(errs...)
}
