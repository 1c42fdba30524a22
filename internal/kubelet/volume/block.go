package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/supervise"
)

// isBlock reports whether a persistent volume is a block device, without a file
// system.
func isBlock(pv *v1.PersistentVolume) bool {
	return pv != nil && pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// isBlock reports whether a volume of the pod that was set up is a block device.
func (v *Manager) isBlock(pod *v1.Pod, vol *v1.Volume) bool {
	if name, _ := podquery.ClaimName(pod, vol); name == "" {
		return false
	}
	return isBlock(v.resolved(pod.UID, vol))
}

// checkDevice returns an error unless a persistent volume is a block device of
// this node.
func (v *Manager) checkDevice(pv *v1.PersistentVolume, path string) error {
	if pv.Spec.Local == nil {
		return fmt.Errorf("PV %s: of the volumes of this node, only local ones can be block devices (volumeMode Block)", pv.Name)
	}
	_, held, err := v.FS.HoldDevice(path)
	if errors.Is(err, files.ErrNotBlockDevice) {
		return fmt.Errorf("PV %s has volumeMode Block, but %s is not a block device", pv.Name, path)
	} else if err != nil {
		return err
	}
	return held.Close()
}

// podVolume is a volume of a pod.
type podVolume struct {
	pod  types.UID
	name string
}

// heldDevice has the block devices that a volume of a pod has had. They stay
// open while the pod has the volume: a container may use a device by its number
// after the device is gone, and must not find another one there.
type heldDevice struct {
	id   string // of the last one
	open []io.Closer
}

// heldDevices are the block devices of all pods.
type heldDevices struct {
	mu       sync.Mutex // guards the maps; the values of known belong to the pod's goroutine
	known    map[podVolume]*heldDevice
	released map[types.UID]*release
}

// release is the end of a pod's devices. The last one that closes a device writes
// what is not on the disk yet, which may take minutes.
type release struct {
	done chan struct{}
	err  error
}

func (d *heldDevices) get(key podVolume) *heldDevice {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[key]
}

func (d *heldDevices) add(key podVolume, id string, held io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = make(map[podVolume]*heldDevice)
	}
	if d.known[key] == nil {
		d.known[key] = &heldDevice{}
	}
	h := d.known[key]
	h.id, h.open = id, append(h.open, held)
}

// release closes the devices of a pod. If that takes longer than ctx, it returns
// an error, and the next call waits on.
func (d *heldDevices) release(ctx context.Context, pod types.UID) error {
	r := d.begin(ctx, pod)
	if r == nil {
		return nil
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("closing block devices: %w", context.Cause(ctx))
	}
}

// begin begins to close the devices of a pod, and returns nil if there are none.
func (d *heldDevices) begin(ctx context.Context, pod types.UID) *release {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.released[pod]; r != nil {
		return r
	}
	var open []io.Closer
	for key, h := range d.known {
		if key.pod == pod {
			open = append(open, h.open...)
			delete(d.known, key)
		}
	}
	if len(open) == 0 {
		return nil
	}
	if d.released == nil {
		d.released = make(map[types.UID]*release)
	}
	r := &release{done: make(chan struct{})}
	d.released[pod] = r
	supervise.Go(ctx, func() {
		var errs []error
		for _, held := range open {
			errs = append(errs, held.Close())
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.released, pod)
		r.err = errors.Join(errs...)
		close(r.done)
	})
	return r
}

// deviceRecord tells the next kubelet which device a volume is.
type deviceRecord struct {
	Boot string `json:"boot"` // of the machine, which numbers devices anew
	ID   string `json:"id"`
}

func (v *Manager) deviceFile(uid types.UID, vol *v1.Volume) string {
	return filepath.Join(filepath.Dir(v.readyFile(uid, vol)), "device")
}

// hold keeps the block device of a volume open until the pod is torn down. It
// returns an error if the path names another device than before, unless the
// volume was set up anew.
func (v *Manager) hold(uid types.UID, vol *v1.Volume, path string, anew bool) error {
	id, held, err := v.FS.HoldDevice(path)
	if err != nil {
		return err
	}
	key, kept := podVolume{uid, vol.Name}, false
	defer func() {
		if !kept {
			_ = held.Close() // nothing was written
		}
	}()
	boot, _ := v.FS.ReadFile("/proc/sys/kernel/random/boot_id", maxReady)
	now, before := deviceRecord{Boot: strings.TrimSpace(string(boot)), ID: id}, deviceRecord{}
	known := v.devices.get(key)
	if known != nil {
		before = deviceRecord{Boot: now.Boot, ID: known.id}
	} else if raw, err := v.FS.ReadFile(v.deviceFile(uid, vol), maxReady); err == nil && json.Unmarshal(raw, &before) != nil {
		before = deviceRecord{} // truncated by a loss of power
	}
	if known != nil && before == now {
		return nil
	}
	if !anew && before.ID != "" && before.Boot == now.Boot && before.ID != now.ID {
		return fmt.Errorf("%s is another block device than the one that the pod was given", path)
	}
	if before != now { // a disk that is full keeps no known device from being used
		raw, err := json.Marshal(now)
		if err != nil {
			return err
		}
		file := v.deviceFile(uid, vol)
		if err := v.FS.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return err
		}
		if err := v.FS.ReplaceUnsynced(file, raw, 0o640); err != nil { // another boot ignores it
			return err
		}
	}
	kept = true
	v.devices.add(key, id, held)
	return nil
}

// Devices returns the runtime's devices for the block volumes of one container of
// the pod. paths is the result of SetUp.
func (v *Manager) Devices(pod *v1.Pod, c *v1.Container, paths map[string]string) ([]*runtimeapi.Device, error) {
	out := make([]*runtimeapi.Device, 0, len(c.VolumeDevices))
	for _, d := range c.VolumeDevices {
		vol := volumeOf(pod, d.Name)
		path := paths[d.Name]
		if vol == nil || path == "" {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		if !v.isBlock(pod, vol) {
			return nil, fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", d.Name)
		}
		if !filepath.IsAbs(d.DevicePath) || filepath.Clean(d.DevicePath) == "/" {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", d.DevicePath)
		}
		if err := v.hold(pod.UID, vol, path, false); err != nil {
			return nil, fmt.Errorf("volume %s: %w", d.Name, err)
		}
		permissions := "mrw"
		if claim := vol.PersistentVolumeClaim; claim != nil && claim.ReadOnly {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{ContainerPath: d.DevicePath, HostPath: path, Permissions: permissions})
	}
	return out, nil
}
