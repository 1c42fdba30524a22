package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// LogFailure logs the error of work that a component will retry. A panic is
// counted as well. part says which work it was.
func LogFailure(ctx context.Context, part string, err error, message string, values ...any) {
	if panicked := (*Panic)(nil); errors.As(err, &panicked) {
		RecordPanic(ctx, fmt.Errorf("%s: %s: %w", part, message, err))
		return
	}
	klog.FromContext(ctx).Error(err, message, values...)
}

// Contain does work that a component will repeat. It recovers from a panic of
// work, logs and counts it. part says which work it was.
func Contain(ctx context.Context, part string, work func()) {
	err := Call(func() error {
		work()
		return nil
	})
	if err != nil {
		LogFailure(ctx, part, err, "going on without it")
	}
}

// Repeat calls f at once and then once in each period until ctx ends.
func Repeat(ctx context.Context, period time.Duration, f func()) {
	f()
	Every(ctx, period, f)
}

// Every calls f once in each period until ctx ends, first after one period.
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

// Pause waits, not at all if d is not positive. It returns false if ctx has ended, or ends
// before.
func Pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// IgnoreCanceled returns nil for the error of a server whose context was
// canceled, which is how it is stopped, and any other error as it is.
func IgnoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
