package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
)

// logMounts returns the mounts of the directories of the pods' logs in a container that
// has the machine's directory of logs, where they usually are. A mount of the container's
// own stays in its place. With the propagation Bidirectional there are none: they would be
// mounts of the machine, over its own logs and beyond the end of the container. root is the
// root directory of the kubelet.
func logMounts(disk files.FS, paths hostpath.Directories, root string, c *v1.Container, machine *runtimeapi.Mount) (out []*runtimeapi.Mount) {
	if machine.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL {
		return nil
	}
	for _, usual := range []string{hostpath.PodLogs, hostpath.LogLinks} {
		real, point := paths.Real(usual), filepath.Join(machine.GetContainerPath(), filepath.Base(usual))
		own := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return filepath.Join("/", m.MountPath) == point })
		if real == usual || own {
			continue
		}
		if err := makeMountPoint(disk, usual, root); err != nil {
			klog.Background().Error(err, "A container with the machine's logs does not see those of pods", "path", usual)
			continue
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: point, HostPath: real, Readonly: machine.GetReadonly()})
	}
	return out
}

// makeMountPoint makes a directory of the machine to mount another one on in containers,
// unless it is there, and marks it as used by the kubelet with this root directory, unless
// others have made it.
func makeMountPoint(disk files.FS, path, root string) error {
	err := markMountPoint(disk, path, root)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) { // another kubelet has removed or made it meanwhile
		return markMountPoint(disk, path, root)
	}
	return err
}

func markMountPoint(disk files.FS, path, root string) error {
	mode, err := disk.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = disk.MakeMarked(path, hostpath.MarkName, []byte(hostpath.MarkText)); err == nil {
			mode, err = disk.Lstat(path)
		}
	}
	if err != nil {
		return err
	}
	if !mode.IsDir() {
		return fmt.Errorf("%s is not a directory", path)
	}
	if _, err := disk.Lstat(filepath.Join(path, hostpath.MarkName)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	name, content := hostpath.Mark(root)
	return disk.AddMark(path, name, content)
}
