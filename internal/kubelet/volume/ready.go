package volume

import (
	"encoding/json"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxReady bounds the file that says that a volume was set up.
const maxReady = 64 << 10

// plugin is the name that the volume's folders have.
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

// mounted returns where a volume was set up before, by this process or one
// before it; "" if it never was, or is gone since, like a tmpfs after a reboot.
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
			if there, err := v.isMountPoint(dir); err != nil || !there {
				return ""
			}
		}
		return dir
	case vol.HostPath != nil:
		if v.isReady(pod.UID, vol) {
			return vol.HostPath.Path
		}
	case vol.PersistentVolumeClaim != nil, vol.Ephemeral != nil:
		if pv := v.resolved(pod.UID, vol); pv != nil {
			return pathOf(pv)
		}
	}
	return ""
}

// isMountPoint says whether something is mounted on the folder itself.
func (v *Manager) isMountPoint(dir string) (bool, error) {
	points, err := v.Mounter.Below(dir)
	return slices.Contains(points, dir), err
}

func (v *Manager) readyFile(uid types.UID, vol *v1.Volume) string {
	return filepath.Join(v.PodDir(uid), "plugins", "kubernetes.io~"+plugin(vol), vol.Name, "ready")
}

// setReady notes that all of a volume is done, and the persistent volume that
// its claim stands for.
func (v *Manager) setReady(uid types.UID, vol *v1.Volume, pv *v1.PersistentVolume) error {
	var content []byte
	if pv != nil {
		kept := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.Name}}
		kept.Spec.PersistentVolumeSource = pv.Spec.PersistentVolumeSource
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

// resolved is the persistent volume that the pod's claim was found to stand
// for, nil if that has to be asked. A note that was cut short says nothing.
func (v *Manager) resolved(uid types.UID, vol *v1.Volume) *v1.PersistentVolume {
	raw, err := v.FS.ReadFile(v.readyFile(uid, vol), maxReady)
	pv := &v1.PersistentVolume{}
	if err != nil || json.Unmarshal(raw, pv) != nil || pathOf(pv) == "" {
		return nil
	}
	return pv
}

// pathOf is the path of a persistent volume that can be mounted on this node.
func pathOf(pv *v1.PersistentVolume) string {
	switch {
	case pv.Spec.HostPath != nil:
		return pv.Spec.HostPath.Path
	case pv.Spec.Local != nil:
		return pv.Spec.Local.Path
	}
	return ""
}
