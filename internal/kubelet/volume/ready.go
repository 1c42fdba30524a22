package volume

import (
	"encoding/json"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// maxReady bounds the file that records that a volume was set up.
const maxReady = 64 << 10

// plugin returns the name of the plugin in the paths of the volume.
func plugin(vol *v1.Volume) string {
	switch {
	case vol.EmptyDir != nil:
		return "empty-dir"
	case vol.HostPath != nil:
		return "host-path"
	case vol.ConfigMap != nil:
		return "configmap"
	case vol.Secret != nil:
		return "secret"
	case vol.DownwardAPI != nil:
		return "downward-api"
	case vol.Projected != nil:
		return "projected"
	}
	return "persistent-claim"
}

// mounted returns the path of a volume that this process or an earlier one has
// set up, "" if there is none or if it no longer exists, like a tmpfs after a
// reboot.
func (v *Manager) mounted(pod *v1.Pod, vol *v1.Volume) string {
	dir := v.dir(pod.UID, plugin(vol), vol.Name)
	switch {
	case vol.ConfigMap != nil, vol.Secret != nil, vol.DownwardAPI != nil, vol.Projected != nil:
		if _, err := v.FS.Readlink(filepath.Join(dir, dataLink)); err == nil {
			return dir
		}
	case vol.EmptyDir != nil:
		if _, err := v.FS.Stat(dir); err != nil || !v.isReady(pod.UID, vol) {
			return ""
		}
		if vol.EmptyDir.Medium != v1.StorageMediumDefault {
			if there, err := v.Mounter.IsMountPoint(dir); err != nil || !there {
				return ""
			}
		}
		return dir
	case vol.HostPath != nil:
		if v.isReady(pod.UID, vol) {
			return v.Paths.Real(vol.HostPath.Path)
		}
	case vol.PersistentVolumeClaim != nil, vol.Ephemeral != nil:
		if pv := v.resolved(pod.UID, vol); pv != nil && pv.Spec.CSI != nil {
			return v.CSI.Mounted(pod.UID, pv.Name)
		} else if pv != nil {
			return (&localVolume{v, pod, pv}).mounted()
		}
	case vol.CSI != nil:
		return v.CSI.Mounted(pod.UID, vol.Name)
	}
	return ""
}

func (v *Manager) readyFile(uid types.UID, vol *v1.Volume) string {
	return filepath.Join(v.PodDir(uid), "plugins", "kubernetes.io~"+plugin(vol), vol.Name, "ready")
}

// setReady records that a volume is completely set up, and the persistent
// volume of its claim.
func (v *Manager) setReady(uid types.UID, vol *v1.Volume, pv *v1.PersistentVolume) error {
	var content []byte
	if pv != nil {
		kept := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.Name}}
		if gid, ok := groupOf(pv); ok {
			kept.Annotations = map[string]string{groupAnnotation: strconv.FormatInt(gid, 10)}
		}
		kept.Spec.PersistentVolumeSource, kept.Spec.VolumeMode = pv.Spec.PersistentVolumeSource, pv.Spec.VolumeMode
		if pv.Spec.Local != nil { // its path depends on them
			kept.Spec.MountOptions = mountOptions(pv)
		}
		if pv.Spec.CSI != nil { // its attributes may be larger than the record
			kept.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: pv.Spec.CSI.Driver, VolumeHandle: pv.Spec.CSI.VolumeHandle}
		}
		var err error
		if content, err = json.Marshal(kept); err != nil {
			return err
		}
	}
	path := v.readyFile(uid, vol)
	if err := v.FS.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return v.FS.WriteFile(path, content, 0o640)
}

func (v *Manager) isReady(uid types.UID, vol *v1.Volume) bool {
	_, err := v.FS.Stat(v.readyFile(uid, vol))
	return err == nil
}

// resolved returns the persistent volume that setReady recorded for the pod's
// claim, nil if there is none. It ignores a truncated record.
func (v *Manager) resolved(uid types.UID, vol *v1.Volume) *v1.PersistentVolume {
	return recorded(v.FS, v.readyFile(uid, vol))
}

// recorded returns the persistent volume in a file of setReady, nil if there is none.
func recorded(disk files.FS, path string) *v1.PersistentVolume {
	raw, err := disk.ReadFile(path, maxReady)
	pv := &v1.PersistentVolume{}
	if err != nil || json.Unmarshal(raw, pv) != nil || pathOf(pv) == "" && pv.Spec.CSI == nil {
		return nil
	}
	return pv
}

// groupAnnotation is the annotation of a persistent volume with the group that may
// access it.
const groupAnnotation = "pv.beta.kubernetes.io/gid"

func groupOf(pv *v1.PersistentVolume) (gid int64, ok bool) {
	id, err := strconv.ParseUint(pv.Annotations[groupAnnotation], 10, 31)
	return int64(id), err == nil
}

// Groups returns the groups that may access the pod's persistent volumes,
// according to their annotations. All containers of the pod belong to them.
func (v *Manager) Groups(pod *v1.Pod) []int64 {
	var groups []int64
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.PersistentVolumeClaim == nil && vol.Ephemeral == nil {
			continue
		}
		if pv := v.resolved(pod.UID, vol); pv != nil {
			if gid, ok := groupOf(pv); ok {
				groups = append(groups, gid)
			}
		}
	}
	return groups
}

// pathOf returns the path of a persistent volume that is a directory of this
// node.
func pathOf(pv *v1.PersistentVolume) string {
	switch {
	case pv.Spec.HostPath != nil:
		return pv.Spec.HostPath.Path
	case pv.Spec.Local != nil:
		return pv.Spec.Local.Path
	}
	return ""
}

// isOfNode reports whether a persistent volume, which may be nil, is a directory or a
// device of this node.
func isOfNode(pv *v1.PersistentVolume) bool { return pv != nil && pathOf(pv) != "" }
