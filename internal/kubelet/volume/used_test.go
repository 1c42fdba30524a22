package volume

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// A pod starts without a volume that no container of it uses, such as one of a secret
// that is missing, and waits for it once a container does.
func TestVolumesThatNoContainerUses(t *testing.T) {
	mounts := []v1.VolumeMount{{Name: "s", MountPath: "/s"}}
	for name, test := range map[string]struct {
		use   func(s *v1.PodSpec)
		waits bool
	}{
		"no container":          {func(*v1.PodSpec) {}, false},
		"a container":           {func(s *v1.PodSpec) { s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts, mounts...) }, true},
		"an init container":     {func(s *v1.PodSpec) { s.InitContainers = []v1.Container{{Name: "i", VolumeMounts: mounts}} }, true},
		"a container's devices": {func(s *v1.PodSpec) { s.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "s", DevicePath: "/s"}} }, true},
		"an ephemeral container": {func(s *v1.PodSpec) {
			s.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", VolumeMounts: mounts}}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &files.Memory{}
			v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: &api{away: true, err: errors.New("secret not found")}}
			pod := podWith(nil, v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}})
			test.use(&pod.Spec)
			paths, _, err := v.SetUp(t.Context(), pod, Facts{})
			if test.waits {
				if err == nil || !strings.Contains(err.Error(), `MountVolume.SetUp failed for volume "s" : secret not found`) {
					t.Errorf("the volumes are at %q, %v", paths, err)
				}
				return
			}
			if err != nil || len(paths) != 1 || paths["work"] == "" {
				t.Errorf("the volumes are at %q, %v", paths, err)
			}
			if _, err := disk.Lstat(v.dir(pod.UID, "secret", "s")); err == nil {
				t.Error("there is a directory for the volume that nothing uses")
			}
		})
	}
}
