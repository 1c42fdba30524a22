package volume

import (
	"context"
	"io/fs"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

type objects struct{}

func (objects) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{Data: map[string]string{"key": "value"}}, nil
}

func (objects) Secret(context.Context, string, string) (*v1.Secret, error) {
	return &v1.Secret{Data: map[string][]byte{"key": []byte("hidden")}}, nil
}

type tokens struct{}

func (tokens) Token(context.Context, *v1.Pod, string, int64) (string, error) { return "token", nil }
func (tokens) Forget(types.UID)                                              {}

// owners records the owners of files.
type owners struct {
	files.Memory
	uids []int
}

func (o *owners) Lchown(_ string, uid, _ int) error {
	if uid >= 0 {
		o.uids = append(o.uids, uid)
	}
	return nil
}

func podWith(user *int64, volumes ...v1.Volume) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid", Namespace: "default"}, Spec: v1.PodSpec{
		Volumes: volumes, Containers: []v1.Container{{Name: "main"}}, SecurityContext: &v1.PodSecurityContext{RunAsUser: user},
	}}
	for _, vol := range volumes {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: vol.Name, MountPath: "/" + vol.Name})
	}
	return pod
}

func TestContentsAreReadOnlyAndSecretsInMemory(t *testing.T) {
	fs := &files.Memory{}
	v := &Manager{Root: "/k", FS: fs, Mounter: fs, Objects: objects{}, Tokens: tokens{}}
	pod := podWith(nil,
		v1.Volume{Name: "cm", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		v1.Volume{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		v1.Volume{Name: "api", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}},
		v1.Volume{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}},
		v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
	)
	for range 2 {
		paths, _, err := v.SetUp(t.Context(), pod, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		mounted, err := fs.Below("/k")
		if err != nil {
			t.Fatal(err)
		}
		for name, inMemory := range map[string]bool{"cm": false, "secret": true, "api": true, "all": true, "work": false} {
			if slices.Contains(mounted, paths[name]) != inMemory {
				t.Errorf("volume %s in memory: %v; mounts %v", name, !inMemory, mounted)
			}
		}
		mounts, err := v.Mounts(pod, &pod.Spec.Containers[0], paths, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mounts {
			if m.Readonly != (m.ContainerPath != "/work") {
				t.Errorf("%s is mounted read-only: %v", m.ContainerPath, m.Readonly)
			}
		}
	}
}

// Paths may have parts that mean nothing. The files are there, and are not written
// again while they stay as they are.
func TestPathsAreCleaned(t *testing.T) {
	disk := &files.Memory{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk, Objects: objects{}}
	pod := podWith(nil, v1.Volume{Name: "cm", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		Items: []v1.KeyToPath{{Key: "key", Path: "./top"}, {Key: "key", Path: "a//b/./c"}, {Key: "key", Path: "end/"}},
	}}})
	var first string
	for range 2 {
		paths, _, err := v.SetUp(t.Context(), pod, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"top", "a/b/c", "end"} {
			if mode, err := disk.Stat(paths["cm"] + "/" + path); err != nil || !mode.IsRegular() {
				t.Errorf("%s: %v, %v", path, mode, err)
			}
		}
		version, err := disk.Readlink(paths["cm"] + "/..data")
		if err != nil || first != "" && version != first {
			t.Errorf("version %s after %s: %v", version, first, err)
		}
		first = version
	}
	pod.Spec.Volumes[0].ConfigMap.Items[0].Path = "a/../../up"
	pod.UID = "other"
	if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err == nil {
		t.Error("a path leaves its volume")
	}
}

func TestTokenBelongsToThePodsUser(t *testing.T) {
	token := v1.Volume{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}
	user, other := int64(1000), int64(2000)
	two := podWith(&user, token)
	two.Spec.Containers = append(two.Spec.Containers, v1.Container{Name: "second", SecurityContext: &v1.SecurityContext{RunAsUser: &other}})
	partly := podWith(nil, token)
	partly.Spec.InitContainers = []v1.Container{{Name: "init", SecurityContext: &v1.SecurityContext{RunAsUser: &user}}}
	ofGroup := podWith(nil, token)
	ofGroup.Spec.SecurityContext.FSGroup = &other
	for name, c := range map[string]struct {
		pod  *v1.Pod
		mode fs.FileMode
		uids []int
	}{
		"no user":   {podWith(nil, token), 0o644, nil},
		"one user":  {podWith(&user, token), 0o600, []int{1000, 1000}}, // the file, and the link to it
		"two users": {two, 0o644, nil},
		"not all":   {partly, 0o644, nil},
		"a group":   {ofGroup, 0o640, nil},
	} {
		disk := &owners{}
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Tokens: tokens{}}
		paths, _, err := v.SetUp(t.Context(), c.pod, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		mode, err := disk.Stat(paths["token"] + "/token")
		if err != nil || mode != c.mode || !slices.Equal(disk.uids, c.uids) {
			t.Errorf("%s: mode %v of users %v (%v), want %v of %v", name, mode, disk.uids, err, c.mode, c.uids)
		}
	}
}

// Mounts appear in containers and on the node as each container asks for it.
func TestPropagation(t *testing.T) {
	disk := &files.Memory{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk}
	pod := podWith(nil, v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	paths, _, err := v.SetUp(t.Context(), pod, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for want, mode := range map[runtimeapi.MountPropagation]*v1.MountPropagationMode{
		runtimeapi.MountPropagation_PROPAGATION_PRIVATE:           nil,
		runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: new(v1.MountPropagationHostToContainer),
		runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:     new(v1.MountPropagationBidirectional),
	} {
		pod.Spec.Containers[0].VolumeMounts[0].MountPropagation = mode
		mounts, err := v.Mounts(pod, &pod.Spec.Containers[0], paths, nil)
		if err != nil || len(mounts) != 1 || mounts[0].GetPropagation() != want {
			t.Errorf("%v %v, want %v", mounts, err, want)
		}
	}
}

func TestMountsThatAreRefused(t *testing.T) {
	disk := &files.Memory{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk}
	pod := podWith(nil, v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	paths, _, err := v.SetUp(t.Context(), pod, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]v1.Container{
		"error SubPath `/tmp` must not be an absolute path":                        {VolumeMounts: []v1.VolumeMount{{Name: "work", SubPath: "/tmp"}}},
		"unable to provision SubPath `a/../b`: must not contain '..'":              {VolumeMounts: []v1.VolumeMount{{Name: "work", SubPath: "a/../b"}}},
		`cannot find volume "other" to mount into container "main"`:                {VolumeMounts: []v1.VolumeMount{{Name: "other", MountPath: "/x"}}},
		`cannot find volume "other" to pass into container "main"`:                 {VolumeDevices: []v1.VolumeDevice{{Name: "other", DevicePath: "/dev/x"}}},
		"volume work has volumeMode Filesystem, but is specified in volumeDevices": {VolumeDevices: []v1.VolumeDevice{{Name: "work", DevicePath: "/dev/x"}}},
	} {
		c.Name = "main"
		_, err := v.Mounts(pod, &c, paths, nil)
		if err == nil {
			_, err = v.Devices(pod, &c, paths)
		}
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestSubPathExprNamesWhatIsUnknown(t *testing.T) {
	disk := &files.Memory{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk}
	pod := podWith(nil, v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	paths, _, err := v.SetUp(t.Context(), pod, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for expression, fine := range map[string]bool{"$(POD)": true, "$$(POD)": true, "$(NOBODY)": false, "$(UP)": false, "$(ROOT)": false} {
		pod.Spec.Containers[0].VolumeMounts[0].SubPathExpr = expression
		_, err := v.Mounts(pod, &pod.Spec.Containers[0], paths, []spec.Variable{{Name: "POD", Value: "web"}, {Name: "UP", Value: ".."}, {Name: "ROOT", Value: "/tmp"}})
		if (err == nil) != fine {
			t.Errorf("subPathExpr %s: %v", expression, err)
		}
	}
}
