package store

import (
	"context"
	"errors"
	"time"
)

// Change replaces the value of a key by the result of next, and calls next again
// with the latest value after a conflict with another write. next gets the zero
// KeyValue if the key does not exist. If it returns no value, Change does nothing.
// ttl is as in Create.
func Change(ctx context.Context, s Store, key string, ttl time.Duration, next func(current KeyValue) (value []byte, err error)) error {
	for {
		current, err := s.Get(ctx, key)
		missing := errors.Is(err, ErrNotFound)
		if err != nil && !missing {
			return err
		}
		if missing {
			current = KeyValue{}
		}
		value, err := next(current)
		if err != nil || value == nil {
			return err
		}
		if missing {
			_, err = s.Create(ctx, key, value, ttl)
		} else {
			_, err = s.Update(ctx, key, value, current.Revision, ttl)
		}
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
}
