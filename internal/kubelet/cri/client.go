package cri

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	internalapi "k8s.io/cri-api/pkg/apis"
)

// Client is a connection to a container runtime. Its services may be handed
// around at once and be called after Connect has returned.
type Client struct {
	runtime instrumentedRuntime
	images  instrumentedImages
	dialed  bool

	name, version string
}

// NewClient returns a client of the two services, or, where one of them is
// nil, of those that Connect dials. Calls are counted in r.
func NewClient(runtime internalapi.RuntimeService, images internalapi.ImageManagerService, r prometheus.Registerer) *Client {
	m := newMetrics(r)
	return &Client{runtime: instrumentedRuntime{runtime, m}, images: instrumentedImages{images, m}}
}

// Connect dials as Dial does, unless the client has its services already, and
// asks the runtime for its version.
func (c *Client) Connect(ctx context.Context, runtimeEndpoint, imageEndpoint string, timeout time.Duration) error {
	if c.runtime.RuntimeService == nil || c.images.ImageManagerService == nil {
		runtime, images, err := Dial(ctx, runtimeEndpoint, imageEndpoint, timeout)
		if err != nil {
			return err
		}
		c.runtime.RuntimeService, c.images.ImageManagerService, c.dialed = runtime, images, true
	}
	version, err := c.runtime.Version(ctx, "")
	if err != nil {
		c.Close(ctx)
		return fmt.Errorf("ask the container runtime for its version: %w", err)
	}
	c.name, c.version = version.GetRuntimeName(), version.GetRuntimeVersion()
	return nil
}

// Close ends the connections that Connect has made.
func (c *Client) Close(ctx context.Context) {
	if c.dialed {
		_ = c.runtime.Close(context.WithoutCancel(ctx))
		_ = c.images.Close(context.WithoutCancel(ctx))
	}
}

// Runtime is the service of sandboxes and containers.
func (c *Client) Runtime() internalapi.RuntimeService { return &c.runtime }

// Images is the service of images.
func (c *Client) Images() internalapi.ImageManagerService { return &c.images }

// Name is the runtime's name, such as containerd; "" before Connect.
func (c *Client) Name() string { return c.name }

// Version is the runtime's version; "" before Connect.
func (c *Client) Version() string { return c.version }

// Exec runs a command in a container and returns what it wrote to both of
// its streams. A timeout of 0 is none.
func Exec(ctx context.Context, runtime internalapi.RuntimeService, containerID string, command []string, timeout time.Duration) ([]byte, error) {
	stdout, stderr, err := runtime.ExecSync(ctx, containerID, command, timeout)
	return append(stdout, stderr...), err
}
