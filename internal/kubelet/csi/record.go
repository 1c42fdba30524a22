package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/mountinfo"
)

// record is the content of a vol_data.json.
type record struct {
	Name         string                        `json:"specVolID,omitempty"`
	Handle       string                        `json:"volumeHandle"`
	Driver       string                        `json:"driverName"`
	Node         string                        `json:"nodeName,omitempty"`
	AttachmentID string                        `json:"attachmentID,omitempty"`
	Mode         storagev1.VolumeLifecycleMode `json:"volumeLifecycleMode,omitempty"`
}

func (r *record) volume() v1.UniqueVolumeName { return csivolume.UniqueName(r.Driver, r.Handle) }

// maxRecord bounds a record. A volume's attributes are not in it.
const maxRecord = 64 << 10

// errNoRecord says that a directory of a volume has no record, or one that is damaged.
// No call to a driver followed a record that was not written completely.
var errNoRecord = errors.New("which volume it is was not recorded")

// writeRecord records a volume in its directory.
func (v *Volumes) writeRecord(dir string, r record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := v.FS.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return v.FS.Replace(filepath.Join(dir, recordName), raw, 0o644)
}

// readRecord returns the record in the directory of a volume.
func (v *Volumes) readRecord(dir string) (record, error) {
	var r record
	raw, err := v.FS.ReadFile(filepath.Join(dir, recordName), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return r, errNoRecord
	}
	if err != nil {
		return r, err
	}
	if json.Unmarshal(raw, &r) != nil || checkDriver(r.Driver) != nil || r.Handle == "" {
		return r, errNoRecord
	}
	return r, nil
}

// readStaged returns the record in the directory of a staged volume. A record of a volume
// that belongs into another directory is damaged: its driver would be called about the
// wrong volume.
func (v *Volumes) readStaged(dir string) (record, error) {
	r, err := v.readRecord(dir)
	if err == nil && v.stageDir(r.Driver, r.Handle) != dir {
		return record{}, errNoRecord
	}
	return r, err
}

// placed is a volume that a pod has, or that is staged.
type placed struct {
	record
	pod types.UID // empty: staged
	dir string
	err error // of reading the record
}

// children returns the directories in a directory. A missing one has none.
func (v *Volumes) children(dir string) ([]string, error) {
	names, err := v.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(names, func(name string) bool {
		mode, err := v.FS.Lstat(filepath.Join(dir, name))
		return err == nil && !mode.IsDir() // a file that a driver left
	}), err
}

// ofPod returns the volumes that a pod has on the node.
func (v *Volumes) ofPod(uid types.UID) ([]placed, error) {
	dir := v.volumesDir(uid)
	names, err := v.children(dir)
	out := make([]placed, 0, len(names))
	for _, name := range names {
		p := placed{pod: uid, dir: filepath.Join(dir, name)}
		p.record, p.err = v.readRecord(p.dir)
		out = append(out, p)
	}
	return out, err
}

// ofPods returns the volumes that all pods have on the node.
func (v *Volumes) ofPods() ([]placed, error) {
	uids, err := v.children(filepath.Join(v.Root, "pods"))
	if err != nil {
		return nil, err
	}
	var out []placed
	for _, uid := range uids {
		if !files.IsPodUID(uid) {
			continue
		}
		some, err := v.ofPod(types.UID(uid))
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// staged returns the volumes that are staged, or may be.
func (v *Volumes) staged() ([]placed, error) {
	drivers, err := v.children(v.stagesDir())
	if err != nil {
		return nil, err
	}
	var out []placed
	for _, driver := range drivers {
		if checkDriver(driver) != nil {
			continue
		}
		names, err := v.children(filepath.Join(v.stagesDir(), driver))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			p := placed{dir: filepath.Join(v.stagesDir(), driver, name)}
			p.record, p.err = v.readStaged(p.dir)
			out = append(out, p)
		}
	}
	return out, nil
}

// unreadable returns why it is unknown which volume a directory has. A volume
// without a record and without mounts has no error.
func (v *Volumes) unreadable(p *placed) error {
	if p.err == nil {
		return nil
	}
	mounts, err := v.Mounter.Below(p.dir)
	if err == nil && len(mounts) == 0 && errors.Is(p.err, errNoRecord) {
		return nil
	}
	return errors.Join(p.err, err)
}

// users returns the pods that have a volume on the node. A record that cannot be
// read may be of any volume, so it is an error.
func (v *Volumes) users(volume v1.UniqueVolumeName) ([]types.UID, error) {
	all, err := v.ofPods()
	if err != nil {
		return nil, err
	}
	var out []types.UID
	for _, p := range all {
		if err := v.unreadable(&p); err != nil {
			return nil, fmt.Errorf("read the record of a volume of pod %s: %w", p.pod, err)
		}
		if p.err == nil && p.volume() == volume {
			out = append(out, p.pod)
		}
	}
	return out, nil
}

// release removes the target of a volume and its record, after the driver has
// unmounted it. Only an empty directory is removed: what is left in it may be
// data.
func (v *Volumes) release(dir, target string) error {
	if err := v.unmountBelow(target, true); err != nil {
		return err
	}
	for _, path := range []string{target, filepath.Join(dir, recordName), dir} {
		if err := v.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the volume is unmounted, but %w", err)
		}
	}
	return nil
}

// discard removes the empty directories of a volume if nothing of it is
// recorded. It unmounts nothing, because what is mounted there is unknown.
func (v *Volumes) discard(dir, target string) error {
	points, err := v.points(target)
	if err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("%s is mounted, but %s is missing or damaged: unmount it by the means of its driver", target, filepath.Join(dir, recordName))
	}
	for _, path := range []string{target, dir} {
		if err := v.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is missing or damaged, and %w", filepath.Join(dir, recordName), err)
		}
	}
	return nil
}

// points returns the mount points at or below the target of a volume, deepest
// first. It does not touch the target, whose file system may not answer.
func (v *Volumes) points(target string) ([]string, error) {
	points, err := v.Mounter.Below(filepath.Dir(target))
	return mountinfo.Below(points, target), err
}

// unmountBelow unmounts what is mounted below a target, and with itself what is
// left on it.
func (v *Volumes) unmountBelow(target string, itself bool) error {
	points, err := v.points(target)
	if err != nil {
		return err
	}
	for _, point := range points {
		if point == target && !itself {
			continue
		}
		if err := v.Mounter.Unmount(point); err != nil {
			return err
		}
	}
	return nil
}

// isMounted reports whether something is mounted on a target.
func (v *Volumes) isMounted(target string) (bool, error) {
	points, err := v.points(target)
	return slices.Contains(points, target), err
}

// ready is the content of the file that says that a volume was published.
type ready struct {
	Boot    string `json:"boot"` // of the machine; mounts do not outlive it
	Mounted bool   `json:"mounted"`
}

const maxReady = 4 << 10

// boot returns an identifier of this boot of the machine.
func (v *Volumes) boot() string {
	raw, _ := v.FS.ReadFile("/proc/sys/kernel/random/boot_id", maxReady)
	return strings.TrimSpace(string(raw))
}

// setReady records that a volume was published completely.
func (v *Volumes) setReady(uid types.UID, name, target string) error {
	mounted, err := v.isMounted(target)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(ready{Boot: v.boot(), Mounted: mounted})
	if err != nil {
		return err
	}
	path := v.readyFile(uid, name)
	if err := v.FS.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return v.FS.ReplaceUnsynced(path, raw, 0o640) // another boot ignores it
}

// Mounted returns the path of a volume that was published completely, by this
// process or an earlier one, and still is, otherwise "". name is the name of
// the persistent volume or of the pod's inline volume.
func (v *Volumes) Mounted(uid types.UID, name string) string {
	raw, err := v.FS.ReadFile(v.readyFile(uid, name), maxReady)
	var r ready
	if err != nil || json.Unmarshal(raw, &r) != nil || r.Boot != v.boot() {
		return ""
	}
	target := filepath.Join(v.volumesDir(uid), name, targetName)
	if mounted, err := v.isMounted(target); err != nil || mounted != r.Mounted {
		return ""
	}
	if !r.Mounted {
		if _, err := v.FS.Lstat(target); err != nil {
			return ""
		}
	}
	return target
}
