package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/amount"
)

const everyone = 0o777

func (v *Volumes) emptyDir(pod *v1.Pod, vol *v1.Volume) (string, error) {
	dir := v.dir(pod.UID, "empty-dir", vol.Name)
	if _, err := v.FS.Stat(dir); err == nil {
		return dir, nil
	}
	if err := v.FS.MkdirAll(dir, everyone); err != nil {
		return "", err
	}
	switch vol.EmptyDir.Medium {
	case v1.StorageMediumDefault:
	case v1.StorageMediumMemory:
		var options []string
		if size := memorySize(pod, vol.EmptyDir); size > 0 {
			options = append(options, fmt.Sprintf("size=%d", size))
		}
		if err := v.mountMemory(dir, options); err != nil {
			_ = v.FS.RemoveAll(dir)
			return "", err
		}
	default:
		_ = v.FS.RemoveAll(dir)
		return "", fmt.Errorf("storage medium %q of an emptyDir is not supported on this node", vol.EmptyDir.Medium)
	}
	return dir, v.own(pod, dir, false)
}

// memorySize is the size of a tmpfs: the volume's limit or the pod's memory
// limit, whichever is smaller; 0 for none.
func memorySize(pod *v1.Pod, source *v1.EmptyDirVolumeSource) int64 {
	var size int64
	if source.SizeLimit != nil {
		size = amount.Value(*source.SizeLimit)
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Resources.Limits.Memory().IsZero() {
			return size
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	limit := amount.Value(*limits.Memory())
	if limit > 0 && (size == 0 || limit < size) {
		return limit
	}
	return size
}

// hostPath checks the path against the type that the pod expects.
func (v *Volumes) hostPath(source *v1.HostPathVolumeSource) (string, error) {
	path := source.Path
	if source.Type == nil || *source.Type == v1.HostPathUnset {
		return path, nil
	}
	mode, err := v.FS.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return "", err
	}
	failed := func(what string) error { return fmt.Errorf("hostPath type check failed: %s is not %s", path, what) }
	switch *source.Type {
	case v1.HostPathDirectoryOrCreate:
		if missing {
			return path, v.FS.MkdirAll(path, 0o755)
		}
		if !mode.IsDir() {
			return "", failed("a directory")
		}
	case v1.HostPathDirectory:
		if missing || !mode.IsDir() {
			return "", failed("a directory")
		}
	case v1.HostPathFileOrCreate:
		if missing {
			return path, v.FS.WriteFile(path, nil, 0o644)
		}
		if !mode.IsRegular() {
			return "", failed("a file")
		}
	case v1.HostPathFile:
		if missing || !mode.IsRegular() {
			return "", failed("a file")
		}
	case v1.HostPathSocket:
		if missing || mode&fs.ModeSocket == 0 {
			return "", failed("a socket file")
		}
	case v1.HostPathCharDev:
		if missing || mode&fs.ModeCharDevice == 0 {
			return "", failed("a character device")
		}
	case v1.HostPathBlockDev:
		if missing || mode&fs.ModeDevice == 0 || mode&fs.ModeCharDevice != 0 {
			return "", failed("a block device")
		}
	default:
		return "", fmt.Errorf("%s is an invalid volume type", *source.Type)
	}
	return path, nil
}

// claim resolves a claim to a directory of this node.
func (v *Volumes) claim(ctx context.Context, pod *v1.Pod, name string) (string, error) {
	pvc, err := v.Claims.Claim(ctx, pod.Namespace, name)
	if err != nil {
		return "", fmt.Errorf("failed to fetch PVC %s/%s: %w", pod.Namespace, name, err)
	}
	if pvc.Status.Phase != v1.ClaimBound || pvc.Spec.VolumeName == "" {
		return "", fmt.Errorf("PVC %s/%s is not bound", pod.Namespace, name)
	}
	pv, err := v.Claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return "", fmt.Errorf("failed to fetch PV %s of PVC %s/%s: %w", pvc.Spec.VolumeName, pod.Namespace, name, err)
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return "", fmt.Errorf("PV %s is not bound to PVC %s/%s", pv.Name, pod.Namespace, name)
	}
	switch {
	case pv.Spec.HostPath != nil:
		return v.hostPath(pv.Spec.HostPath)
	case pv.Spec.Local != nil:
		if _, err := v.FS.Stat(pv.Spec.Local.Path); err != nil {
			return "", fmt.Errorf("path %q of local volume %s does not exist", pv.Spec.Local.Path, pv.Name)
		}
		return pv.Spec.Local.Path, v.ownOnce(pod, pv.Spec.Local.Path)
	case pv.Spec.NFS != nil:
		return "", fmt.Errorf("PV %s: volumes of type nfs are not supported on this node", pv.Name)
	case pv.Spec.CSI != nil:
		return "", fmt.Errorf("driver name %s not found in the list of registered CSI drivers", pv.Spec.CSI.Driver)
	}
	return "", fmt.Errorf("PV %s: no volume plugin matched", pv.Name)
}

// own hands a volume to the pod's fsGroup.
func (v *Volumes) own(pod *v1.Pod, root string, readOnly bool) error {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	return v.FS.Share(root, int(*sc.FSGroup), readOnly)
}

// ownOnce is own for a volume that others may be writing to: it is handed over
// when the pod first gets it, not with every look at the pod.
func (v *Volumes) ownOnce(pod *v1.Pod, root string) error {
	v.mu.Lock()
	done := v.owned[pod.UID][root]
	v.mu.Unlock()
	if done {
		return nil
	}
	if err := v.own(pod, root, false); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.owned == nil {
		v.owned = map[types.UID]map[string]bool{}
	}
	if v.owned[pod.UID] == nil {
		v.owned[pod.UID] = map[string]bool{}
	}
	v.owned[pod.UID][root] = true
	return nil
}

// EmptyDir is the path of one of a pod's emptyDir volumes.
func (v *Volumes) EmptyDir(uid types.UID, name string) string { return v.dir(uid, "empty-dir", name) }
