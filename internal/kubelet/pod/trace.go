package pod

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/tracing"
)

// traced does a part of the work on a pod in a span with upstream's name and
// attributes, if there is a tracer.
func (c *Config) traced(ctx context.Context, name string, pod *v1.Pod, work func(context.Context) error) error {
	if c.Tracer == nil {
		return work(ctx)
	}
	ctx, span := c.Tracer.Start(ctx, name, trace.WithAttributes(
		semconv.K8SPodUID(string(pod.UID)), attribute.String("k8s.pod", klog.KObj(pod).String()),
		semconv.K8SPodName(pod.Name), semconv.K8SNamespaceName(pod.Namespace),
	))
	defer span.End()
	err := work(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		tracing.Fail(span, err)
	}
	return err
}
