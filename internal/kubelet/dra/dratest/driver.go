// Package dratest is a small DRA driver for tests.
package dratest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher/plugintest"
)

// The methods of a driver, as hooks and Calls name them.
const (
	Prepare   = "prepare"
	Unprepare = "unprepare"
)

// Driver is a DRA driver. Its fields are set before Serve.
type Driver struct {
	drapb.UnimplementedDRAPluginServer
	healthv1.UnimplementedDRAResourceHealthServer

	Name string
	// Services are those that the driver has, such as v1.DRAPlugin. It serves
	// all of them.
	Services []string
	// Devices returns the devices of a claim, whose CDI devices exist then.
	Devices func(ctx context.Context, claim *drapb.Claim) ([]*drapb.Device, error)
	// Released removes what Devices has made. It may be nil.
	Released func(claim *drapb.Claim) error
	// Before and After are called around each call, and may return its error.
	// They may be nil.
	Before, After func(ctx context.Context, method string) error
	// Answer changes the answer to a call of prepare. It may be nil.
	Answer func(answer *drapb.NodePrepareResourcesResponse)

	mu       sync.Mutex // guards what follows
	calls    []string
	prepared map[string]bool // claims by UID
	health   []*healthv1.DeviceHealth
	reported chan struct{} // closed by the next report
}

// About returns what the driver says to the kubelet that looks for plugins.
func (d *Driver) About(endpoint string) *registerapi.PluginInfo {
	return &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: d.Name, Endpoint: endpoint, SupportedVersions: d.Services}
}

// Serve serves the driver on a socket, and its registration on another, until
// stop is called, which removes both.
func (d *Driver) Serve(endpoint, registration string) (stop func(), err error) {
	return plugintest.Serve(d.About(endpoint), registration, func(s *grpc.Server) {
		for _, name := range d.Services {
			switch name {
			case drapb.DRAPluginService:
				drapb.RegisterDRAPluginServer(s, d)
			case drapbv1beta1.DRAPluginService:
				drapbv1beta1.RegisterDRAPluginServer(s, drapbv1beta1.V1ServerWrapper{DRAPluginServer: d})
			case healthv1.DRAResourceHealthService:
				healthv1.RegisterDRAResourceHealthServer(s, d)
			case healthv1alpha1.DRAResourceHealthService:
				healthv1alpha1.RegisterDRAResourceHealthServer(s, healthv1.V1ServerWrapper{Server: d})
			}
		}
	})
}

// Calls returns the calls with the names of their claims, in their order, and
// forgets them.
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.calls
	d.calls = nil
	return out
}

// Prepared returns the UIDs of the claims that are prepared, sorted.
func (d *Driver) Prepared() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.prepared))
}

// change records a call and does what it asks for.
func (d *Driver) change(ctx context.Context, method string, claims []*drapb.Claim, do func(c *drapb.Claim) error) error {
	names := make([]string, len(claims))
	for i, c := range claims {
		names[i] = c.GetNamespace() + "/" + c.GetName()
	}
	d.mu.Lock()
	d.calls = append(d.calls, method+" "+strings.Join(names, " "))
	d.mu.Unlock()
	if d.Before != nil {
		if err := d.Before(ctx, method); err != nil {
			return err
		}
	}
	for _, c := range claims {
		if err := do(c); err != nil {
			return err
		}
	}
	if d.After != nil {
		return d.After(ctx, method)
	}
	return nil
}

func (d *Driver) set(uid string, prepared bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.prepared == nil {
		d.prepared = make(map[string]bool)
	}
	if d.prepared[uid] = true; !prepared {
		delete(d.prepared, uid)
	}
}

// NodePrepareResources implements drapb.DRAPluginServer.
func (d *Driver) NodePrepareResources(ctx context.Context, r *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	answer := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	err := d.change(ctx, Prepare, r.GetClaims(), func(c *drapb.Claim) error {
		devices, err := d.Devices(ctx, c)
		if err != nil {
			answer.Claims[c.GetUid()] = &drapb.NodePrepareResourceResponse{Error: err.Error()}
			return nil
		}
		d.set(c.GetUid(), true)
		answer.Claims[c.GetUid()] = &drapb.NodePrepareResourceResponse{Devices: devices}
		return nil
	})
	if d.Answer != nil {
		d.Answer(answer)
	}
	return answer, err
}

// NodeUnprepareResources implements drapb.DRAPluginServer.
func (d *Driver) NodeUnprepareResources(ctx context.Context, r *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	answer := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	return answer, d.change(ctx, Unprepare, r.GetClaims(), func(c *drapb.Claim) error {
		if d.Released != nil {
			if err := d.Released(c); err != nil {
				return fmt.Errorf("release claim %s: %w", c.GetName(), err)
			}
		}
		d.set(c.GetUid(), false)
		answer.Claims[c.GetUid()] = &drapb.NodeUnprepareResourceResponse{}
		return nil
	})
}

// Report reports the health of devices to the kubelets that ask.
func (d *Driver) Report(health ...*healthv1.DeviceHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = health
	if d.reported != nil {
		close(d.reported)
	}
	d.reported = make(chan struct{})
}

// NodeWatchResources implements healthv1.DRAResourceHealthServer.
func (d *Driver) NodeWatchResources(_ *healthv1.NodeWatchResourcesRequest, stream healthv1.DRAResourceHealth_NodeWatchResourcesServer) error {
	for {
		d.mu.Lock()
		health := d.health
		if d.reported == nil {
			d.reported = make(chan struct{})
		}
		next := d.reported
		d.mu.Unlock()
		if len(health) > 0 {
			if err := stream.Send(&healthv1.NodeWatchResourcesResponse{Devices: health}); err != nil {
				return err
			}
		}
		select {
		case <-next:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
