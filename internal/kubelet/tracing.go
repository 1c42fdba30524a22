package kubelet

import (
	"fmt"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/validation/field"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/tracing"
)

// NewTracing returns the provider of spans of a kubelet with a configuration, nil if
// that has no tracing.
func NewTracing(k *kubeletconfig.KubeletConfiguration, nodeName string) *tracing.Provider {
	if k.Tracing == nil {
		return nil
	}
	return tracing.New(k.Tracing, semconv.ServiceName("kubelet"), semconv.HostName(nodeName))
}

// tracingErrors returns what is wrong with the settings of tracing.
func tracingErrors(k *kubeletconfig.KubeletConfiguration) []error {
	var errs []error
	for _, err := range tracingapi.ValidateTracingConfiguration(k.Tracing, nil, field.NewPath("tracing")) {
		errs = append(errs, fmt.Errorf("invalid configuration: %w", err))
	}
	return errs
}

// traces returns the provider of spans, or nil.
func (c *Config) traces() trace.TracerProvider {
	if c.Diagnostics.Tracing == nil {
		return nil
	}
	return c.Diagnostics.Tracing
}

// tracer returns the tracer of syncs, or nil.
func (c *Config) tracer() trace.Tracer {
	if c.Diagnostics.Tracing == nil {
		return nil
	}
	return c.Diagnostics.Tracing.Tracer("github.com/coracle-io/coracle/internal/kubelet")
}
