package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/printable"
)

// Amount is how much of something a volume has, in bytes or inodes.
type Amount struct{ Total, Used, Available uint64 }

// Health is the health of a volume, as its driver reports it.
type Health struct {
	Abnormal bool
	Message  string // of an abnormal volume
}

// Usage is the usage and health of a volume, as its driver reports them. A
// field that the driver leaves out is nil.
type Usage struct {
	Bytes, Inodes *Amount
	Health        *Health
}

// ErrNoUsage says that nothing is known about the use of a volume.
var ErrNoUsage = errors.New("the use of the volume is not measured")

// Usage asks the driver of a volume that a pod has what it uses, and whether it is
// healthy. name is the name of the persistent volume or of the pod's inline volume.
// Usage may be called while the volume is set up or torn down. An error matches
// ErrNoUsage if the volume is not mounted, or if its driver says nothing about
// volumes. The usage may be set along with an error: a volume that cannot be
// measured may be one that is not healthy.
func (v *Volumes) Usage(ctx context.Context, uid types.UID, name string) (*Usage, error) {
	target := v.Mounted(uid, name)
	if target == "" {
		return nil, ErrNoUsage
	}
	r, err := v.readRecord(filepath.Dir(target))
	if err != nil {
		return nil, err
	}
	at, err := v.drivers.endpoint(r.Driver)
	if err != nil {
		return nil, err
	}
	can, err := askCapabilities(ctx, at)
	if err != nil {
		return nil, err
	}
	staging := ""
	if can[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] && r.Mode != storagev1.VolumeLifecycleEphemeral {
		staging = filepath.Join(v.stageDir(r.Driver, r.Handle), stagingName)
	}
	out, err := &Usage{}, ErrNoUsage
	if can[csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		out, err = askUsage(ctx, at, &csipb.NodeGetVolumeStatsRequest{VolumeId: r.Handle, VolumePath: at.named(target), StagingTargetPath: at.named(staging)})
	}
	if !v.Health || !can[csipb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH] {
		return out, err
	}
	if errors.Is(err, ErrNoUsage) {
		err = nil
	}
	health, unknown := askHealth(ctx, at, &csipb.NodeGetVolumeHealthRequest{VolumeId: r.Handle, VolumePublishPath: at.named(target), StagingTargetPath: at.named(staging)})
	out.Health = health
	return out, errors.Join(err, unknown)
}

func askUsage(ctx context.Context, at endpoint, request *csipb.NodeGetVolumeStatsRequest) (*Usage, error) {
	var answer *csipb.NodeGetVolumeStatsResponse
	err := call(ctx, at, func(ctx context.Context, node csipb.NodeClient) (err error) {
		answer, err = node.NodeGetVolumeStats(ctx, request)
		return err
	})
	if err != nil {
		return &Usage{}, fmt.Errorf("NodeGetVolumeStats: %w", err)
	}
	return usageOf(answer.GetUsage())
}

func askHealth(ctx context.Context, at endpoint, request *csipb.NodeGetVolumeHealthRequest) (*Health, error) {
	var answer *csipb.NodeGetVolumeHealthResponse
	err := call(ctx, at, func(ctx context.Context, node csipb.NodeClient) (err error) {
		answer, err = node.NodeGetVolumeHealth(ctx, request)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("NodeGetVolumeHealth: %w", err)
	}
	return healthOf(answer.GetVolumeHealth().GetHealthStatuses()), nil
}

// healthOf returns what the answer of a driver says. Types of a newer CSI are
// ignored, as it demands.
func healthOf(answer []*csipb.VolumeHealth_VolumeHealthEntry) *Health {
	for _, e := range answer {
		switch e.GetStatus() {
		case csipb.VolumeHealthErrorType_DEGRADED, csipb.VolumeHealthErrorType_INACCESSIBLE, csipb.VolumeHealthErrorType_DATA_LOSS:
			text := e.GetReason()
			if message := e.GetMessage(); message != "" {
				text += ": " + message
			}
			return &Health{Abnormal: true, Message: printable.Line(strings.ToValidUTF8(text[:min(len(text), maxText)], ""))}
		}
	}
	return &Health{}
}

// usageOf returns what the answer of a driver says.
func usageOf(answer []*csipb.VolumeUsage) (*Usage, error) {
	out := &Usage{}
	for _, u := range answer {
		if u.GetTotal() < 0 || u.GetUsed() < 0 || u.GetAvailable() < 0 {
			return &Usage{}, fmt.Errorf("NodeGetVolumeStats: a number of %s is negative", u.GetUnit())
		}
		amount := &Amount{uint64(u.GetTotal()), uint64(u.GetUsed()), uint64(u.GetAvailable())}
		switch u.GetUnit() {
		case csipb.VolumeUsage_BYTES:
			out.Bytes = amount
		case csipb.VolumeUsage_INODES:
			out.Inodes = amount
		}
	}
	if out.Bytes == nil && out.Inodes == nil {
		return out, ErrNoUsage
	}
	return out, nil
}
