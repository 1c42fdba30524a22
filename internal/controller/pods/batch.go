package pods

import (
	"errors"

	"github.com/coracle-io/coracle/internal/supervise"
)

// All calls f for every item at once and returns all errors joined, a panic
// of f among them.
func All[T any](items []T, f func(T) error) error {
	return errors.Join(supervise.Each(len(items), func(i int) error { return f(items[i]) })...)
}
