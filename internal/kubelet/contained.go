package kubelet

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// failed logs an error of one part's work; a panic is counted as well.
func (k *Kubelet) failed(ctx context.Context, part string, err error, message string, values ...any) {
	if panicked := (*supervise.Panic)(nil); errors.As(err, &panicked) {
		supervise.Note(ctx, fmt.Errorf("%s: %s: %w", part, message, err))
		return
	}
	klog.FromContext(ctx).Error(err, message, values...)
}

// contained does a piece of work that is done again sooner or later. A panic
// of it ends nothing else.
func (k *Kubelet) contained(ctx context.Context, part string, work func()) {
	err := supervise.Call(func() error {
		work()
		return nil
	})
	if err != nil {
		k.failed(ctx, part, err, "going on without it")
	}
}

// panicked is contained's for parts that catch panics themselves.
func (k *Kubelet) panicked(part string) func(ctx context.Context, err error) {
	return func(ctx context.Context, err error) {
		k.failed(ctx, part, err, "will try again")
	}
}
