package cri

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	internalapi "k8s.io/cri-api/pkg/apis"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/tracing"
)

// Client is a connection to a container runtime. The services that Runtime and
// Images return may be passed on before Connect, but not called.
type Client struct {
	runtime instrumentedRuntime
	images  instrumentedImages
	exec    *execConnection // nil: the runtime was given, and runs commands itself
	dialed  bool

	name, version string
}

// NewClient returns a client of the given services. Connect dials those that
// are nil. Calls are counted in r. deleteTask ends what the runtime runs of a
// container that it refuses to remove; it is nil if there is no such way.
func NewClient(runtime internalapi.RuntimeService, images internalapi.ImageManagerService, r prometheus.Registerer, deleteTask func(ctx context.Context, containerID string) error) *Client {
	m := newMetrics(r)
	return &Client{runtime: instrumentedRuntime{runtime, m, deleteTask}, images: instrumentedImages{images, m}}
}

// Connect dials the services that the client does not have yet, as Dial does, at
// the endpoints of the configuration, and asks the runtime for its name and
// version. It blocks until the runtime answers or ctx ends. traces may be nil.
func (c *Client) Connect(ctx context.Context, configuration *kubeletconfig.KubeletConfiguration, traces trace.TracerProvider) error {
	if c.runtime.RuntimeService == nil || c.images.ImageManagerService == nil {
		runtime, images, err := Dial(ctx, configuration.ContainerRuntimeEndpoint, configuration.ImageServiceEndpoint, configuration.RuntimeRequestTimeout.Duration, traces)
		if err != nil {
			return err
		}
		c.runtime.RuntimeService, c.images.ImageManagerService, c.dialed = runtime, images, true
		var options []grpc.DialOption
		if traces != nil {
			options = append(options, tracing.DialOption())
		}
		if c.exec, err = connectExec(configuration.ContainerRuntimeEndpoint, configuration.RuntimeRequestTimeout.Duration, options...); err != nil {
			c.Close(ctx)
			return err
		}
	}
	version, err := c.runtime.Version(ctx, "")
	if err != nil {
		c.Close(ctx)
		return fmt.Errorf("ask the container runtime for its version: %w", err)
	}
	c.name, c.version = version.GetRuntimeName(), version.GetRuntimeVersion()
	return nil
}

// Close closes the connections that Connect made.
func (c *Client) Close(ctx context.Context) {
	if c.dialed {
		_ = c.runtime.Close(context.WithoutCancel(ctx))
		_ = c.images.Close(context.WithoutCancel(ctx))
		if c.exec != nil {
			_ = c.exec.conn.Close()
		}
	}
}

// Runtime returns the service for sandboxes and containers.
func (c *Client) Runtime() internalapi.RuntimeService { return &c.runtime }

// Images returns the service for images.
func (c *Client) Images() internalapi.ImageManagerService { return &c.images }

// Name returns the runtime's name, such as containerd. It is empty before
// Connect.
func (c *Client) Name() string { return c.name }

// Version returns the runtime's version. It is empty before Connect.
func (c *Client) Version() string { return c.version }
