package store

import (
	"context"
	"errors"
	"time"
)

// Change replaces the value of a key by what next makes of it, and makes it
// anew from the latest one should another write come first. next is given the
// zero KeyValue where there is no key; no value leaves it as it is. ttl is as
// in Create.
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
