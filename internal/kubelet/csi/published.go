package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
)

// place is where a driver is to mount a volume.
type place struct {
	volumes  *Volumes
	endpoint endpoint // of the driver
	path     string   // by which the kubelet knows it
}

// isAstray reports whether nothing is mounted there, and something is mounted on the
// machine at the path by which the driver knows the place.
func (p place) isAstray() bool {
	named := p.endpoint.named(p.path)
	if named == p.path {
		return false
	}
	own, err := p.volumes.isMounted(p.path)
	if err != nil || own {
		return false
	}
	there, err := p.volumes.isMounted(named)
	return err == nil && there
}

// astray is the error of a driver that has mounted the volume on the machine instead.
func (p place) astray(driver string) error {
	return fmt.Errorf("driver %s has mounted the volume outside of its container, at %s, and not at %s: give it the kubelet's root directory %s in the place of %s",
		driver, p.endpoint.named(p.path), p.path, p.volumes.Root, hostpath.Root)
}

// isEmpty reports whether there is certainly neither a mount nor a file.
func (p place) isEmpty() bool {
	if points, err := p.volumes.points(p.path); err != nil || len(points) > 0 {
		return false
	}
	mode, err := p.volumes.FS.Lstat(p.path)
	if err != nil || !mode.IsDir() {
		return errors.Is(err, fs.ErrNotExist)
	}
	names, err := p.volumes.FS.ReadDir(p.path)
	return err == nil && len(names) == 0
}

// checkPublished returns an error if the driver has published a volume where no pod
// looks, and has it undo that: once it knows other paths, it does not know that mount. A
// driver may publish a volume without a mount, and it may have no files. The pod gets one
// event if both are the case: what it writes is then likely not in the volume.
func checkPublished(ctx context.Context, m *mount) error {
	p := place{m.volumes, m.endpoint, m.target()}
	if p.isAstray() {
		err := p.astray(m.record.Driver)
		if left := callUnpublish(ctx, m.endpoint, m.record.Handle, p.path); left != nil {
			err = fmt.Errorf("%w; it is still mounted there: %w", err, left)
		}
		return err
	}
	if m.source.block() || !p.isEmpty() || !isFirstWarning(m) {
		return nil
	}
	advice := "if the driver mounts volumes, its container needs the kubelet's directory with mountPropagation: Bidirectional"
	if p.endpoint.named(p.path) != p.path {
		advice += ", and a driver that mounts outside of its container needs the directory " + m.volumes.Root + " in the place of " + hostpath.Root
	}
	m.volumes.Recorder.Eventf(m.pod, v1.EventTypeWarning, "VolumeNotMounted",
		"driver %s has published volume %q, but nothing is mounted at %s, and no file is there: %s", m.record.Driver, m.record.Name, p.path, advice)
	return nil
}

// isFirstWarning reports whether the pod was not warned of the volume yet, and notes that
// it is now.
func isFirstWarning(m *mount) (first bool) {
	m.withNeed(func(n *need) { first, n.warned = !n.warned, true })
	return first
}
