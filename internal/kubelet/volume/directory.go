package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coracle-io/coracle/internal/amount"
	podutil "github.com/coracle-io/coracle/internal/pod"
)

const everyone = 0o777

func (v *Manager) emptyDir(pod *v1.Pod, vol *v1.Volume, facts Facts) (string, error) {
	if dir := v.mounted(pod, vol); dir != "" {
		return dir, nil
	}
	dir := v.dir(pod.UID, plugin(vol), vol.Name)
	if err := v.FS.MkdirAll(dir, everyone); err != nil {
		return "", err
	}
	if err := v.mountMedium(pod, vol.EmptyDir, facts, dir); err != nil {
		return "", err
	}
	if err := v.own(pod, dir, false); err != nil {
		return "", err
	}
	return dir, v.setReady(pod.UID, vol, nil)
}

// mountMedium mounts what an emptyDir is to be on, unless it is mounted.
func (v *Manager) mountMedium(pod *v1.Pod, source *v1.EmptyDirVolumeSource, facts Facts, dir string) error {
	if source.Medium == v1.StorageMediumDefault {
		return nil
	}
	if mounted, err := v.isMountPoint(dir); err != nil || mounted {
		return err
	}
	if source.Medium == v1.StorageMediumMemory {
		return v.mountMemory(dir, memorySize(pod, source.SizeLimit, facts))
	}
	size, err := pageSize(pod, source.Medium)
	if err != nil {
		return err
	}
	return v.Mounter.Mount("nodev", dir, "hugetlbfs", []string{fmt.Sprintf("pagesize=%d", size.Value())})
}

// pageSize is the size of the huge pages of a medium: the one that it names,
// or the only one that the pod's containers ask for.
func pageSize(pod *v1.Pod, medium v1.StorageMedium) (resource.Quantity, error) {
	if text, named := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); named {
		return resource.ParseQuantity(text)
	}
	if medium != v1.StorageMediumHugePages {
		return resource.Quantity{}, fmt.Errorf("unknown storage medium %q", medium)
	}
	sizes := map[string]bool{}
	for c := range podutil.Containers(&pod.Spec) {
		for name := range c.Resources.Requests {
			if text, huge := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); huge {
				sizes[text] = true
			}
		}
	}
	if len(sizes) != 1 {
		return resource.Quantity{}, fmt.Errorf("storage medium %s needs one page size in the requests of the pod's containers, found %d", medium, len(sizes))
	}
	return resource.ParseQuantity(slices.Collect(maps.Keys(sizes))[0])
}

// memorySize is the size of a tmpfs in bytes: the least of the volume's limit,
// if it has one, of the pod's memory limit, if all of its containers have one,
// and of what the node has for pods; 0 if nothing of that is known.
func memorySize(pod *v1.Pod, limit *resource.Quantity, facts Facts) int64 {
	var size int64
	least := func(q *resource.Quantity) {
		if bytes := amount.Value(*q); bytes > 0 && (size == 0 || bytes < size) {
			size = bytes
		}
	}
	least(facts.Allocatable.Memory())
	if limit != nil {
		least(limit)
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Resources.Limits.Memory().IsZero() {
			return size
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	least(limits.Memory())
	return size
}

// host is the path of a hostPath volume. What was of the type that the pod
// expects when it began counts as mounted, whatever became of it.
func (v *Manager) host(pod *v1.Pod, vol *v1.Volume) (string, error) {
	path, err := v.hostPath(vol.HostPath)
	if err != nil || vol.HostPath.Type == nil || *vol.HostPath.Type == v1.HostPathUnset || v.isReady(pod.UID, vol) {
		return path, err
	}
	return path, v.setReady(pod.UID, vol, nil)
}

// hostPath checks the path against the type that the pod expects.
func (v *Manager) hostPath(source *v1.HostPathVolumeSource) (string, error) {
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

// claim is the directory of this node that a claim stands for. Which one that
// is, is asked once: the pod keeps it, whatever becomes of the claim.
func (v *Manager) claim(ctx context.Context, pod *v1.Pod, vol *v1.Volume, name string) (string, error) {
	if pv := v.resolved(pod.UID, vol); pv != nil {
		return v.persistent(pv)
	}
	pv, err := v.resolve(ctx, pod, name)
	if err != nil {
		return "", err
	}
	path, err := v.persistent(pv)
	if err != nil {
		return "", err
	}
	// Others may be writing to a local volume: it is handed over when the pod
	// first gets it, not with every look at the pod.
	if pv.Spec.Local != nil {
		if err := v.own(pod, path, false); err != nil {
			return "", err
		}
	}
	return path, v.setReady(pod.UID, vol, pv)
}

// resolve asks for the persistent volume that a claim is bound to.
func (v *Manager) resolve(ctx context.Context, pod *v1.Pod, name string) (*v1.PersistentVolume, error) {
	pvc, err := v.Claims.Claim(ctx, pod.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PVC %s/%s: %w", pod.Namespace, name, err)
	}
	if pvc.Status.Phase != v1.ClaimBound || pvc.Spec.VolumeName == "" {
		return nil, fmt.Errorf("PVC %s/%s is not bound", pod.Namespace, name)
	}
	pv, err := v.Claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PV %s of PVC %s/%s: %w", pvc.Spec.VolumeName, pod.Namespace, name, err)
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return nil, fmt.Errorf("PV %s is not bound to PVC %s/%s", pv.Name, pod.Namespace, name)
	}
	return pv, nil
}

// persistent checks a persistent volume and returns its path.
func (v *Manager) persistent(pv *v1.PersistentVolume) (string, error) {
	switch {
	case pv.Spec.HostPath != nil:
		return v.hostPath(pv.Spec.HostPath)
	case pv.Spec.Local != nil:
		if _, err := v.FS.Stat(pv.Spec.Local.Path); err != nil {
			return "", fmt.Errorf("path %q of local volume %s does not exist", pv.Spec.Local.Path, pv.Name)
		}
		return pv.Spec.Local.Path, nil
	case pv.Spec.NFS != nil:
		return "", fmt.Errorf("PV %s: volumes of type nfs are not supported on this node", pv.Name)
	case pv.Spec.CSI != nil:
		return "", fmt.Errorf("driver name %s not found in the list of registered CSI drivers", pv.Spec.CSI.Driver)
	}
	return "", fmt.Errorf("PV %s: no volume plugin matched", pv.Name)
}

// own hands a volume to the pod's fsGroup.
func (v *Manager) own(pod *v1.Pod, root string, readOnly bool) error {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	return v.FS.Share(root, int(*sc.FSGroup), readOnly)
}

// EmptyDir is the path of one of a pod's emptyDir volumes.
func (v *Manager) EmptyDir(uid types.UID, name string) string { return v.dir(uid, "empty-dir", name) }
