package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
)

// Usage returns the usage of a volume of the pod that was set up, as its driver
// reports it, or the path of a local volume, whose usage the caller reads from
// its file system. For other volumes, it returns an error that matches
// csi.ErrNoUsage.
func (v *Manager) Usage(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (usage *csi.Usage, path string, err error) {
	if vol.CSI != nil {
		usage, err = v.CSI.Usage(ctx, pod.UID, vol.Name)
		return usage, "", err
	}
	if vol.PersistentVolumeClaim == nil && vol.Ephemeral == nil {
		return nil, "", csi.ErrNoUsage
	}
	switch pv := v.resolved(pod.UID, vol); {
	case pv == nil, pv.Spec.CSI == nil && (pv.Spec.Local == nil || isBlock(pv)):
		return nil, "", csi.ErrNoUsage
	case pv.Spec.CSI != nil:
		usage, err = v.CSI.Usage(ctx, pod.UID, pv.Name)
		return usage, "", err
	default:
		return nil, pv.Spec.Local.Path, nil
	}
}
