package volume

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	storagevolume "k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// failed returns the error of a step for a persistent volume. The step has another name
// if the volume is a block device.
func failed(pv *v1.PersistentVolume, step, blockStep string, err error) error {
	if isBlock(pv) {
		step = blockStep
	}
	return &csi.Failure{Step: step, Volume: pv.Name, Err: err}
}

// setUpFailed returns the error of the step in which a pod gets a persistent volume.
func setUpFailed(pv *v1.PersistentVolume, err error) error {
	return failed(pv, "MountVolume.SetUp", "MapVolume.MapPodDevice", err)
}

// checkAffinity returns an error if a persistent volume belongs to other nodes than this
// one, which newest returns. A pod that names its node itself, past the scheduler, may
// have such a volume. If newest is nil, there is no error.
func checkAffinity(newest func() *v1.Node, pv *v1.PersistentVolume) error {
	if newest == nil || pv.Spec.NodeAffinity == nil {
		return nil
	}
	err := errors.New("the labels of the node are not known yet")
	if node := newest(); node != nil {
		err = storagevolume.CheckNodeAffinity(pv, node.Labels)
	}
	if err != nil {
		return failed(pv, "MountVolume.NodeAffinity check", "MapVolume.NodeAffinity check", err)
	}
	return nil
}

// mountOptions returns the options that a persistent volume is to be mounted with: those
// in its annotation, or else in its specification, of which each may be several.
func mountOptions(pv *v1.PersistentVolume) []string {
	options := cmp.Or(pv.Annotations[v1.MountOptionAnnotation], strings.Join(pv.Spec.MountOptions, ","))
	if options == "" {
		return nil
	}
	return strings.Split(options, ",")
}

// isReadOnly reports whether a persistent volume, which may be nil, is a local one with
// the mount option ro. Runtimes make the mount of a container writable unless they are
// told otherwise: they do not keep the flags of what they bind.
func isReadOnly(pv *v1.PersistentVolume) bool {
	return pv != nil && pv.Spec.Local != nil && slices.Contains(mountOptions(pv), "ro")
}

// checkMountOptions returns an error for a directory of the host with mount options. It
// is not mounted, so that they would have no effect.
func checkMountOptions(pv *v1.PersistentVolume) error {
	if pv.Spec.HostPath == nil || len(mountOptions(pv)) == 0 {
		return nil
	}
	return &csi.Failure{Step: "MountVolume.MountOptionSupport check", Volume: pv.Name, Err: errors.New("Mount options are not supported for this volume type")} //nolint:staticcheck // upstream's wording
}

// checkLocal returns an error unless the path of a local volume is a directory. For a
// volume that is a block device, it is enough that the path exists.
func checkLocal(disk files.FS, pv *v1.PersistentVolume) error {
	path := pv.Spec.Local.Path
	mode, err := disk.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("path %q does not exist", path)
	case isBlock(pv), mode.IsDir():
		return nil
	case pathType(mode) == v1.HostPathBlockDev:
		return fmt.Errorf("path %q is a block device, but the volume has volumeMode Filesystem: mount its file system, and have the volume name that directory", path)
	}
	return errors.New("only directory and block device are supported")
}

// localVolume is a persistent volume that a pod gets, which is a directory or a block
// device of this node. Only those of the type local are known to be shared.
type localVolume struct {
	volumes *Manager
	pod     *v1.Pod
	pv      *v1.PersistentVolume
}

// path returns where the pod has the volume: at its own path, or, if it has mount options,
// where it is mounted for the pod.
func (l *localVolume) path() string {
	if l.pv.Spec.Local == nil || isBlock(l.pv) || len(mountOptions(l.pv)) == 0 {
		return pathOf(l.pv)
	}
	return l.volumes.dir(l.pod.UID, "local-volume", l.pv.Name)
}

// mounted is path, but "" if nothing is mounted there that should be.
func (l *localVolume) mounted() string {
	path := l.path()
	if path != pathOf(l.pv) {
		if there, err := l.volumes.Mounter.IsMountPoint(path); err != nil || !there {
			return ""
		}
	}
	return path
}

// mount mounts the volume if it has mount options, and returns its path. The options are
// set each time: a kubelet may have been killed before it set them.
func (l *localVolume) mount() (string, error) {
	path, mounter := l.path(), l.volumes.Mounter
	if path == pathOf(l.pv) {
		return path, nil
	}
	there, err := mounter.IsMountPoint(path)
	if err == nil && !there { // else path is the root of the volume, whose mode is its own
		if err = l.volumes.FS.MkdirAll(path, 0o750); err == nil {
			err = mounter.Mount(pathOf(l.pv), path, "", []string{"bind"})
		}
	}
	if err == nil {
		err = mounter.Mount("none", path, "", slices.Concat([]string{"bind", "remount"}, mountOptions(l.pv)))
	}
	if err != nil {
		return "", setUpFailed(l.pv, err)
	}
	return path, nil
}

// checkUsers returns an error if the volume is for one pod only and another has it.
func (l *localVolume) checkUsers() error {
	if !slices.Contains(l.pv.Spec.AccessModes, v1.ReadWriteOncePod) {
		return nil
	}
	shared, err := l.isShared()
	if err == nil && shared {
		err = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	if err != nil {
		return setUpFailed(l.pv, err)
	}
	return nil
}

// own gives the volume to the pod's fsGroup. A volume that another pod has is left as it
// is, and so is one that the pod only reads.
func (l *localVolume) own(readOnly bool) error {
	sc := l.pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	shared, err := l.isShared()
	if err != nil {
		return err
	}
	if shared {
		return l.warn(*sc.FSGroup)
	}
	if readOnly {
		return nil
	}
	change := csi.GroupChange{
		FS: l.volumes.FS, Recorder: l.volumes.Recorder, Pod: l.pod, Dir: l.pv.Spec.Local.Path,
		Shown: filepath.Join(string(l.pod.UID), "volumes", "kubernetes.io~local-volume", l.pv.Name),
	}
	return change.Apply()
}

// isShared reports whether another pod has the volume.
func (l *localVolume) isShared() (bool, error) {
	if l.pv.Spec.Local == nil {
		return false, nil
	}
	pods, err := l.volumes.Known()
	if err != nil {
		return false, err
	}
	for _, uid := range pods {
		if uid == l.pod.UID {
			continue
		}
		if has, err := l.isOf(uid); err != nil || has {
			return has, err
		}
	}
	return false, nil
}

// isOf reports whether a pod has the volume.
func (l *localVolume) isOf(uid types.UID) (bool, error) {
	dirs, err := below(l.volumes.FS, filepath.Join(l.volumes.PodDir(uid), "plugins", "kubernetes.io~persistent-claim"), 1)
	if err != nil {
		return false, err
	}
	for _, dir := range dirs {
		pv := recorded(l.volumes.FS, filepath.Join(dir, "ready"))
		if pv != nil && pv.Spec.Local != nil && pv.Spec.Local.Path == l.pv.Spec.Local.Path {
			return true, nil
		}
	}
	return false, nil
}

// warn records an event if the volume, which another pod has, does not belong to the
// group that the pod wants.
func (l *localVolume) warn(group int64) error {
	has, err := l.volumes.FS.Group(l.pv.Spec.Local.Path)
	if err != nil {
		return fmt.Errorf("failed to check fsGroup for %s: %w", l.pv.Spec.Local.Path, err)
	}
	if int64(has) != group && l.volumes.Recorder != nil {
		l.volumes.Recorder.Eventf(l.pod, v1.EventTypeWarning, "AlreadyMountedVolume",
			"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", group, l.pv.Name, has)
	}
	return nil
}
