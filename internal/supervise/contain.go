package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Failed logs the error of work that one part of a component will do again. A
// panic is counted as well.
func Failed(ctx context.Context, part string, err error, message string, values ...any) {
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		Note(ctx, fmt.Errorf("%s: %s: %w", part, message, err))
		return
	}
	klog.FromContext(ctx).Error(err, message, values...)
}

// Contain does work that one part of a component will do again. A panic of it
// is counted and ends nothing else.
func Contain(ctx context.Context, part string, work func()) {
	err := Call(func() error {
		work()
		return nil
	})
	if err != nil {
		Failed(ctx, part, err, "going on without it")
	}
}

// Every calls f once in a period, the first time after one, until ctx ends.
func Every(ctx context.Context, period time.Duration, f func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}
