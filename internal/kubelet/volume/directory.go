package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
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
	if mode := vol.EmptyDir.Mode; mode != nil && v.EmptyDirModes {
		if err := v.FS.Chmod(dir, directoryMode(*mode)); err != nil {
			return "", err
		}
	}
	if err := v.own(pod, dir, false); err != nil {
		return "", err
	}
	return dir, v.setReady(pod.UID, vol, nil)
}

// directoryMode returns the permissions of a directory from those of Unix. Only the
// sticky bit is taken beyond them.
func directoryMode(unix int32) fs.FileMode {
	const sticky = 0o1000
	mode := fs.FileMode(unix) & fs.ModePerm
	if unix&sticky != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// mountMedium mounts the medium of an emptyDir, unless it is mounted.
func (v *Manager) mountMedium(pod *v1.Pod, source *v1.EmptyDirVolumeSource, facts Facts, dir string) error {
	if source.Medium == v1.StorageMediumDefault {
		return nil
	}
	if mounted, err := v.Mounter.IsMountPoint(dir); err != nil || mounted {
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

// pageSize returns the size of the huge pages of a medium: that in its name, which the
// pod must request, or the only one that the pod requests.
func pageSize(pod *v1.Pod, medium v1.StorageMedium) (resource.Quantity, error) {
	text, named := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	if !named && medium != v1.StorageMediumHugePages {
		return resource.Quantity{}, fmt.Errorf("unknown storage medium %q", medium)
	}
	sizes, err := requestedPages(pod)
	if err != nil {
		return resource.Quantity{}, err
	}
	if named {
		size, err := amount.Parse(text)
		if err != nil {
			return resource.Quantity{}, err
		}
		sizes = slices.DeleteFunc(sizes, func(s resource.Quantity) bool { return s.Cmp(size) != 0 })
	}
	switch len(sizes) {
	case 0:
		return resource.Quantity{}, fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
	case 1:
		return sizes[0], nil
	}
	return resource.Quantity{}, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
}

// requestedPages returns the sizes of the huge pages that a pod, or one of its
// containers, requests.
func requestedPages(pod *v1.Pod) ([]resource.Quantity, error) {
	var lists []v1.ResourceList
	if whole := pod.Spec.Resources; whole != nil {
		lists = append(lists, whole.Requests)
	}
	for c := range podquery.Containers(&pod.Spec) {
		lists = append(lists, c.Resources.Requests)
	}
	var sizes []resource.Quantity
	for _, requests := range lists {
		for name := range requests {
			text, huge := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			if !huge {
				continue
			}
			size, err := amount.Parse(text)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(sizes, func(s resource.Quantity) bool { return s.Cmp(size) == 0 }) {
				sizes = append(sizes, size)
			}
		}
	}
	return sizes, nil
}

// memorySize returns the size of a tmpfs in bytes: the minimum of the volume's
// size limit, the memory limit of the pod's cgroup and the node's allocatable memory,
// as far as they are set; 0 if none is.
func memorySize(pod *v1.Pod, limit *resource.Quantity, facts Facts) int64 {
	var size int64
	least := func(bytes int64) {
		if bytes > 0 && (size == 0 || bytes < size) {
			size = bytes
		}
	}
	least(amount.Value(*facts.Allocatable.Memory()))
	if limit != nil {
		least(amount.Value(*limit))
	}
	least(spec.MemoryLimit(pod))
	return size
}

// host returns the path of a hostPath volume. The type of the path is checked
// only once for a pod.
func (v *Manager) host(pod *v1.Pod, vol *v1.Volume) (string, error) {
	path, err := v.hostPath(vol.HostPath)
	if err != nil || vol.HostPath.Type == nil || *vol.HostPath.Type == v1.HostPathUnset || v.isReady(pod.UID, vol) {
		return path, err
	}
	return path, v.setReady(pod.UID, vol, nil)
}

// hostPath returns the real path of a directory or file of the machine. It checks that
// the path has the type that the pod requires.
func (v *Manager) hostPath(source *v1.HostPathVolumeSource) (string, error) {
	path := v.Paths.Real(source.Path)
	if source.Type == nil || *source.Type == v1.HostPathUnset {
		return path, nil
	}
	mode, err := v.FS.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return "", err
	}
	want := *source.Type
	switch want {
	case v1.HostPathDirectoryOrCreate:
		if want = v1.HostPathDirectory; missing {
			return path, v.FS.MkdirAll(path, 0o755)
		}
	case v1.HostPathFileOrCreate:
		if want = v1.HostPathFile; missing {
			return path, v.FS.WriteFile(path, nil, 0o644)
		}
	}
	name := map[v1.HostPathType]string{
		v1.HostPathDirectory: "directory", v1.HostPathFile: "file", v1.HostPathSocket: "socket file",
		v1.HostPathCharDev: "character device", v1.HostPathBlockDev: "block device",
	}[want]
	switch has := pathType(mode); {
	case name == "":
		return "", fmt.Errorf("%s is an invalid volume type", want)
	case missing:
		return "", fmt.Errorf("hostPath %s doesn't exist", path)
	case has == v1.HostPathUnset:
		return "", fmt.Errorf("hostPath type check failed, %s is not a %s, unable to determine its type: only recognise file, directory, socket, block device and character device", path, name)
	case has != want:
		return "", fmt.Errorf("hostPath type check failed: %s is not a %s, it's a %s", path, name, has)
	}
	return path, nil
}

// pathType returns what a path is; HostPathUnset if a volume cannot require it, such
// as a pipe.
func pathType(mode fs.FileMode) v1.HostPathType {
	switch {
	case mode.IsDir():
		return v1.HostPathDirectory
	case mode.IsRegular():
		return v1.HostPathFile
	case mode&fs.ModeSocket != 0:
		return v1.HostPathSocket
	case mode&fs.ModeCharDevice != 0:
		return v1.HostPathCharDev
	case mode&fs.ModeDevice != 0:
		return v1.HostPathBlockDev
	}
	return v1.HostPathUnset
}

// claim returns the path of the persistent volume of a claim. It holds a block
// device.
func (v *Manager) claim(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (string, error) {
	before := v.mounted(pod, vol)
	path, err := v.persistentOf(ctx, pod, vol)
	if err != nil {
		return "", err
	}
	pv := v.resolved(pod.UID, vol)
	if !isBlock(pv) || before != "" && v.devices.get(podVolume{pod.UID, vol.Name}) != nil {
		return path, nil
	}
	if err := v.hold(pod.UID, vol, path, before == ""); err != nil {
		return "", setUpFailed(pv, err)
	}
	return path, nil
}

// persistentOf returns the path of the persistent volume of a claim. The claim
// is resolved once: the pod keeps its volume if the claim changes.
func (v *Manager) persistentOf(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (string, error) {
	known := v.resolved(pod.UID, vol)
	if known != nil && known.Spec.CSI == nil {
		if _, err := v.persistent(known); err != nil {
			return "", err
		}
		return (&localVolume{v, pod, known}).mount()
	}
	if known != nil && v.CSI.Fresh(pod.UID, known.Spec.CSI.Driver, known.Spec.CSI.VolumeHandle) {
		if path := v.CSI.Mounted(pod.UID, known.Name); path != "" {
			return path, nil
		}
	}
	pvc, pv, err := v.resolve(ctx, pod, vol)
	if err != nil {
		return "", err
	}
	// The protection of claims releases a claim once no pod on a node refers to it.
	// A pod that is bound after that must not get the volume, which may be erased.
	if known == nil && pvc.DeletionTimestamp != nil {
		return "", fmt.Errorf("PVC %s/%s is being deleted", pvc.Namespace, pvc.Name)
	}
	if known != nil && known.Name != pv.Name {
		return "", fmt.Errorf("PVC %s/%s is bound to another volume, %s, than the pod has, %s", pvc.Namespace, pvc.Name, pv.Name, known.Name)
	}
	if known == nil {
		if err := checkAffinity(v.Node, pv); err != nil {
			return "", err
		}
		if err := checkMountOptions(pv); err != nil {
			return "", err
		}
	}
	if pv.Spec.CSI != nil {
		path, err := v.CSI.SetUp(ctx, pod, csi.Source{Volume: vol, Claim: pvc, PV: pv})
		if err != nil || known != nil {
			return path, err
		}
		return path, v.setReady(pod.UID, vol, pv)
	}
	path, err := v.persistent(pv)
	if err != nil {
		return "", err
	}
	unlock, err := v.giving.Lock(ctx, path) // until it is recorded that the pod has it
	if err != nil {
		return "", err
	}
	defer unlock()
	local := &localVolume{v, pod, pv}
	if err := local.checkUsers(); err != nil {
		return "", err
	}
	if isBlock(pv) {
		if err := v.checkDevice(pv, path); err != nil {
			return "", setUpFailed(pv, err)
		}
		return path, v.setReady(pod.UID, vol, pv)
	}
	if pv.Spec.Local != nil { // once, not with each sync: the pod's containers may own its files
		if err := local.own(readOnly(vol)); err != nil {
			return "", err
		}
	}
	if path, err = local.mount(); err != nil {
		return "", err
	}
	return path, v.setReady(pod.UID, vol, pv)
}

// resolve reads the claim of a volume and the persistent volume that it is
// bound to, with its real path. The claim of an ephemeral volume must have been made for the pod.
func (v *Manager) resolve(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	name, isEphemeral := podquery.ClaimName(pod, vol)
	pvc, err := v.Claims.Claim(ctx, pod.Namespace, name)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to fetch PVC %s/%s: %w", pod.Namespace, name, err)
	}
	if isEphemeral {
		if err := ephemeral.VolumeIsForPod(pod, pvc); err != nil {
			return nil, nil, err
		}
	}
	if pvc.Status.Phase != v1.ClaimBound || pvc.Spec.VolumeName == "" {
		return nil, nil, fmt.Errorf("PVC %s/%s is not bound", pod.Namespace, name)
	}
	pv, err := v.Claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to fetch PV %s of PVC %s/%s: %w", pvc.Spec.VolumeName, pod.Namespace, name, err)
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return nil, nil, fmt.Errorf("PV %s is not bound to PVC %s/%s", pv.Name, pod.Namespace, name)
	}
	return pvc, v.located(pv), nil
}

// located returns a persistent volume with the real path of its directory of this node,
// if it has one.
func (v *Manager) located(pv *v1.PersistentVolume) *v1.PersistentVolume {
	path := v.Paths.Real(pathOf(pv))
	if path == pathOf(pv) {
		return pv
	}
	pv = pv.DeepCopy()
	if pv.Spec.HostPath != nil {
		pv.Spec.HostPath.Path = path
	} else {
		pv.Spec.Local.Path = path
	}
	return pv
}

// persistent checks a persistent volume and returns its path.
func (v *Manager) persistent(pv *v1.PersistentVolume) (string, error) {
	switch {
	case pv.Spec.HostPath != nil:
		path, err := v.hostPath(pv.Spec.HostPath)
		if err != nil {
			return "", setUpFailed(pv, err)
		}
		return path, nil
	case pv.Spec.Local != nil:
		if err := checkLocal(v.FS, pv); err != nil {
			return "", failed(pv, "MountVolume.NewMounter initialization", "MapVolume.NewBlockVolumeMapper initialization", err)
		}
		return pv.Spec.Local.Path, nil
	case pv.Spec.NFS != nil:
		return "", fmt.Errorf("PV %s: volumes of type nfs are not supported on this node", pv.Name)
	}
	return "", fmt.Errorf("PV %s: no volume plugin matched", pv.Name)
}

// own gives a volume to the pod's fsGroup.
func (v *Manager) own(pod *v1.Pod, root string, readOnly bool) error {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	return v.FS.Share(root, int(*sc.FSGroup), readOnly, nil)
}

// Directory returns the path of a volume that the kubelet makes for a pod alone: an
// emptyDir, or the files of objects of the API. It returns "" for others.
func (v *Manager) Directory(uid types.UID, vol *v1.Volume) string {
	if vol.EmptyDir == nil && vol.ConfigMap == nil && vol.Secret == nil && vol.DownwardAPI == nil && vol.Projected == nil {
		return ""
	}
	return v.dir(uid, plugin(vol), vol.Name)
}
