// Package csitest is a small CSI driver for tests. Each of its volumes is a
// directory, which it bind-mounts, or a block device.
package csitest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/pluginwatcher/plugintest"
)

// Driver is a CSI driver. Its fields are set before Serve.
type Driver struct {
	csipb.UnimplementedNodeServer

	Name    string
	NodeID  string
	Dir     string // with a directory for each volume
	FS      files.FS
	Mounter files.Mounter
	// Most is the number of volumes that a node can have, 0: any number.
	Most         int64
	Topology     map[string]string
	Capabilities []csipb.NodeServiceCapability_RPC_Type
	// Place places the block device of a volume at a target. It may be nil if no
	// volume is a block device.
	Place func(volume, target string) error
	// Unhealthy says what is wrong with each unhealthy volume.
	Unhealthy []*csipb.VolumeHealth_VolumeHealthEntry
	// Before and After are called around each call that changes something, and
	// may return its error. They may be nil.
	Before, After func(ctx context.Context, method string, request any) error

	mu       sync.Mutex // guards what follows
	calls    []string
	requests map[string]any // the last of each method
	mounts   int
}

// Serve serves the driver on a socket, and its registration on another, until
// stop is called, which removes both.
func (d *Driver) Serve(endpoint, registration string) (stop func(), err error) {
	about := &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: d.Name, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"}}
	return plugintest.Serve(about, registration, func(s *grpc.Server) { csipb.RegisterNodeServer(s, d) })
}

// Calls returns the methods that were called, in their order, and forgets them.
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.calls
	d.calls = nil
	return out
}

// Request returns the last request of a method, nil if there was none.
func (d *Driver) Request(method string) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests[method]
}

// Mounts returns how often the driver has mounted something.
func (d *Driver) Mounts() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mounts
}

// change records a call and does what it asks for.
func (d *Driver) change(ctx context.Context, method string, request any, do func() error) error {
	d.mu.Lock()
	d.calls = append(d.calls, method)
	if d.requests == nil {
		d.requests = make(map[string]any)
	}
	d.requests[method] = request
	d.mu.Unlock()
	if d.Before != nil {
		if err := d.Before(ctx, method, request); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if d.After != nil {
		return d.After(ctx, method, request)
	}
	return nil
}

// NodeGetInfo implements csipb.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	answer := &csipb.NodeGetInfoResponse{NodeId: d.NodeID, MaxVolumesPerNode: d.Most}
	if len(d.Topology) > 0 {
		answer.AccessibleTopology = &csipb.Topology{Segments: maps.Clone(d.Topology)}
	}
	return answer, nil
}

// NodeGetCapabilities implements csipb.NodeServer.
func (d *Driver) NodeGetCapabilities(context.Context, *csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	answer := &csipb.NodeGetCapabilitiesResponse{}
	for _, c := range d.Capabilities {
		answer.Capabilities = append(answer.Capabilities, &csipb.NodeServiceCapability{
			Type: &csipb.NodeServiceCapability_Rpc{Rpc: &csipb.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return answer, nil
}

// Directory returns the directory of a volume.
func (d *Driver) Directory(volume string) string { return filepath.Join(d.Dir, volume) }

// mount mounts source on target, unless something is mounted there.
func (d *Driver) mount(source, target string) error {
	points, err := d.Mounter.Below(target)
	if err != nil || slices.Contains(points, target) {
		return err
	}
	if err := d.FS.MkdirAll(source, 0o755); err != nil {
		return err
	}
	if err := d.FS.MkdirAll(target, 0o755); err != nil {
		return err
	}
	d.mu.Lock()
	d.mounts++
	d.mu.Unlock()
	return d.Mounter.Mount(source, target, "", []string{"bind"})
}

// NodeStageVolume implements csipb.NodeServer.
func (d *Driver) NodeStageVolume(ctx context.Context, r *csipb.NodeStageVolumeRequest) (*csipb.NodeStageVolumeResponse, error) {
	return &csipb.NodeStageVolumeResponse{}, d.change(ctx, "NodeStageVolume", r, func() error {
		if r.GetVolumeCapability().GetBlock() != nil {
			return nil
		}
		return d.mount(d.Directory(r.GetVolumeId()), r.GetStagingTargetPath())
	})
}

// NodeUnstageVolume implements csipb.NodeServer.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *csipb.NodeUnstageVolumeRequest) (*csipb.NodeUnstageVolumeResponse, error) {
	return &csipb.NodeUnstageVolumeResponse{}, d.change(ctx, "NodeUnstageVolume", r, func() error {
		return d.Mounter.Unmount(r.GetStagingTargetPath())
	})
}

// NodePublishVolume implements csipb.NodeServer.
func (d *Driver) NodePublishVolume(ctx context.Context, r *csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	return &csipb.NodePublishVolumeResponse{}, d.change(ctx, "NodePublishVolume", r, func() error {
		if r.GetVolumeCapability().GetBlock() != nil {
			return d.Place(r.GetVolumeId(), r.GetTargetPath())
		}
		source := d.Directory(r.GetVolumeId())
		if staged := r.GetStagingTargetPath(); staged != "" {
			if points, err := d.Mounter.Below(staged); err != nil || !slices.Contains(points, staged) {
				return fmt.Errorf("volume %s is not staged on %s: %w", r.GetVolumeId(), staged, err)
			}
			source = staged
		}
		return d.mount(source, r.GetTargetPath())
	})
}

// NodeUnpublishVolume implements csipb.NodeServer.
func (d *Driver) NodeUnpublishVolume(ctx context.Context, r *csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	return &csipb.NodeUnpublishVolumeResponse{}, d.change(ctx, "NodeUnpublishVolume", r, func() error {
		if err := d.Mounter.Unmount(r.GetTargetPath()); err != nil {
			return err
		}
		if err := d.FS.Remove(r.GetTargetPath()); err != nil && !os.IsNotExist(err) {
			return err
		}
		return nil
	})
}

// NodeExpandVolume implements csipb.NodeServer.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *csipb.NodeExpandVolumeRequest) (*csipb.NodeExpandVolumeResponse, error) {
	return &csipb.NodeExpandVolumeResponse{}, d.change(ctx, "NodeExpandVolume", r, func() error { return nil })
}

// NodeGetVolumeStats implements csipb.NodeServer.
func (d *Driver) NodeGetVolumeStats(ctx context.Context, r *csipb.NodeGetVolumeStatsRequest) (*csipb.NodeGetVolumeStatsResponse, error) {
	return &csipb.NodeGetVolumeStatsResponse{Usage: []*csipb.VolumeUsage{
		{Unit: csipb.VolumeUsage_BYTES, Total: 1000, Used: 400, Available: 600}, {Unit: csipb.VolumeUsage_INODES, Total: 100, Used: 1, Available: 99},
	}}, d.change(ctx, "NodeGetVolumeStats", r, func() error { return nil })
}

// NodeGetVolumeHealth implements csipb.NodeServer.
func (d *Driver) NodeGetVolumeHealth(ctx context.Context, r *csipb.NodeGetVolumeHealthRequest) (*csipb.NodeGetVolumeHealthResponse, error) {
	return &csipb.NodeGetVolumeHealthResponse{VolumeHealth: &csipb.VolumeHealth{VolumeId: r.GetVolumeId(), HealthStatuses: d.Unhealthy}},
		d.change(ctx, "NodeGetVolumeHealth", r, func() error { return nil })
}
