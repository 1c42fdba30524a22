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
// mounts of the machine, over its own logs and beyond the end of the container.
func logMounts(disk files.FS, paths hostpath.Directories, c *v1.Container, machine *runtimeapi.Mount) (out []*runtimeapi.Mount) {
	if machine.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL {
		return nil
	}
	for _, usual := range []string{hostpath.PodLogs, hostpath.LogLinks} {
		real, point := paths.Real(usual), filepath.Join(machine.GetContainerPath(), filepath.Base(usual))
		own := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return filepath.Join("/", m.MountPath) == point })
		if real == usual || own {
			continue
		}
		if err := makeMountPoint(disk, usual); err != nil {
			klog.Background().Error(err, "A container with the machine's logs does not see those of pods", "path", usual)
			continue
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: point, HostPath: real, Readonly: machine.GetReadonly()})
	}
	return out
}

// makeMountPoint makes a directory of the machine to mount another one on in containers,
// with a mark, unless it is there.
func makeMountPoint(disk files.FS, path string) error {
	mode, err := disk.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return disk.MakeMarked(path, hostpath.MarkName, []byte(hostpath.MarkText))
	case err == nil && !mode.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	}
	return err
}
