package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/pflag"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/util/webhook"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/coracle-io/coracle/internal/apiserver/webhooks"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/traced"
	"github.com/coracle-io/coracle/internal/tracing"
)

// TracingOptions say where the spans of requests go.
type TracingOptions struct {
	// ConfigFile is the file of a TracingConfiguration. Empty turns tracing off.
	ConfigFile string
}

func (o *TracingOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, "tracing-config-file", o.ConfigFile, "TracingConfiguration: the collector that spans are sent to, and how many requests are sampled; without it there is no tracing")
	flagvalue.Is(fs, flagvalue.File, "tracing-config-file")
}

func (o *TracingOptions) validate() []error {
	if _, err := o.configuration(); err != nil {
		return []error{err}
	}
	return nil
}

// configuration reads the file of --tracing-config-file. It returns nil without one.
func (o *TracingOptions) configuration() (*tracingapi.TracingConfiguration, error) {
	if o.ConfigFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	c, err := decodeConfiguration[apiserver.TracingConfiguration](content)
	if err == nil {
		err = tracingapi.ValidateTracingConfiguration(&c.TracingConfiguration, nil, nil).ToAggregate()
	}
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file %s: %w", o.ConfigFile, err)
	}
	return &c.TracingConfiguration, nil
}

// traces is the tracing of an API server. Without a provider it is off, and nothing
// is wrapped.
type traces struct{ provider *tracing.Provider }

func newTraces(o *TracingOptions) (traces, error) {
	c, err := o.configuration()
	if err != nil || c == nil {
		return traces{}, err
	}
	id, err := serverID()
	if err != nil {
		return traces{}, err
	}
	return traces{tracing.New(c, semconv.ServiceName("apiserver"), semconv.ServiceInstanceID(id))}, nil
}

// start sends spans until stop is called.
func (t traces) start(ctx context.Context) (stop func(), err error) {
	if t.provider == nil {
		return func() {}, nil
	}
	return t.provider.Start(ctx)
}

// tracer returns the tracer of requests, or nil.
func (t traces) tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer("github.com/coracle-io/coracle/internal/apiserver")
}

// store traces the requests to a store.
func (t traces) store(s store.Store) store.Store {
	if t.provider == nil {
		return s
	}
	return traced.New(s)
}

// webhooks returns what traces the calls of webhooks, or nil.
func (t traces) webhooks() webhook.AuthenticationInfoResolverWrapper {
	if t.provider == nil {
		return nil
	}
	return webhooks.Through(t.provider.Transport)
}

// transport returns what traces the requests of a round tripper, or nil.
func (t traces) transport() func(http.RoundTripper) http.RoundTripper {
	if t.provider == nil {
		return nil
	}
	return t.provider.Transport
}
