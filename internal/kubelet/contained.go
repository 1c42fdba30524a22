package kubelet

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// failed logs an error of one part's work and counts it if it was a panic,
// which is logged with its stack.
func (k *Kubelet) failed(ctx context.Context, part string, err error, message string, values ...any) {
	var panicked *supervise.Panic
	if errors.As(err, &panicked) {
		k.metrics.panics.WithLabelValues(part).Inc()
		values = append(values, "stack", string(panicked.Stack))
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
		k.failed(ctx, part, err, "A piece of the kubelet's work panicked, going on without it", "part", part)
	}
}

// panicked is contained's for parts that catch panics themselves.
func (k *Kubelet) panicked(part string) func(ctx context.Context, err error) {
	return func(ctx context.Context, err error) {
		k.failed(ctx, part, err, "A piece of the kubelet's work panicked, will try again", "part", part)
	}
}
