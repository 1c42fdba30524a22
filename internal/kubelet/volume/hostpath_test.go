package volume

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
)

// A path of another type than required is told of with the type that it has.
func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	v := &Manager{FS: files.OS{}}
	for _, test := range []struct {
		path     string
		required v1.HostPathType
		want     string
	}{
		{dir, v1.HostPathDirectory, ""},
		{at("file"), v1.HostPathFile, ""},
		{at("socket"), v1.HostPathSocket, ""},
		{"/dev/null", v1.HostPathCharDev, ""},
		{at("new"), v1.HostPathDirectoryOrCreate, ""},
		{at("new"), v1.HostPathDirectory, ""},
		{at("made"), v1.HostPathFileOrCreate, ""},
		{at("made"), v1.HostPathFile, ""},
		{at("none"), v1.HostPathDirectory, "hostPath " + at("none") + " doesn't exist"},
		{at("file"), v1.HostPathDirectoryOrCreate, "hostPath type check failed: " + at("file") + " is not a directory, it's a File"},
		{dir, v1.HostPathFileOrCreate, "hostPath type check failed: " + dir + " is not a file, it's a Directory"},
		{dir, v1.HostPathSocket, "hostPath type check failed: " + dir + " is not a socket file, it's a Directory"},
		{at("socket"), v1.HostPathBlockDev, "hostPath type check failed: " + at("socket") + " is not a block device, it's a Socket"},
		{"/dev/null", v1.HostPathFile, "hostPath type check failed: /dev/null is not a file, it's a CharDevice"},
		{at("pipe"), v1.HostPathFile, "hostPath type check failed, " + at("pipe") + " is not a file, unable to determine its type: only recognise file, directory, socket, block device and character device"},
		{dir, "Door", "Door is an invalid volume type"},
	} {
		got := ""
		if path, err := v.hostPath(&v1.HostPathVolumeSource{Path: test.path, Type: &test.required}); err != nil {
			got = err.Error()
		} else if path != test.path {
			t.Errorf("%s: the path is %s", test.path, path)
		}
		if got != test.want {
			t.Errorf("%s as %s: %q, want %q", test.path, test.required, got, test.want)
		}
	}
}

// elsewhere are the directories of a kubelet that are not the usual ones.
func elsewhere() hostpath.Directories {
	return hostpath.New("/data/kubelet", "/data/logs/pods", "/data/logs/containers")
}

// A volume with a usual path of the kubelet is its real directory, whose type counts, also
// when the kubelet sees the pod again and when it is a persistent volume.
func TestUsualPaths(t *testing.T) {
	directory := new(v1.HostPathDirectory)
	for _, test := range []struct {
		path string
		kind *v1.HostPathType
		want string
	}{
		{"/var/lib/kubelet", directory, "/data/kubelet"},
		{"/var/lib/kubelet/pods/", directory, "/data/kubelet/pods"},
		{"/var/lib/kubelet/plugins/x", new(v1.HostPathDirectoryOrCreate), "/data/kubelet/plugins/x"},
		{"/data/kubelet/pods", directory, "/data/kubelet/pods"},
		{"/var/log/pods", nil, "/data/logs/pods"},
		{"/var/log/containers", nil, "/data/logs/containers"},
		{"/var/log", nil, "/var/log"},
		{"/var/lib/kubelets", nil, "/var/lib/kubelets"},
	} {
		disk := &files.Memory{}
		if err := disk.MkdirAll("/data/kubelet/pods", 0o750); err != nil {
			t.Fatal(err)
		}
		hostPath := &v1.HostPathVolumeSource{Path: test.path, Type: test.kind}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.ClaimRef, pv.Spec.HostPath = &v1.ObjectReference{UID: "claim"}, hostPath
		v := &Manager{Root: "/data/kubelet", Paths: elsewhere(), FS: disk, Mounter: disk, Claims: oneVolume{pv}}
		for name, pod := range map[string]*v1.Pod{
			"a volume": podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{HostPath: hostPath}}), "a persistent volume": podWith(nil, claimVolume(false)),
		} {
			for range 2 {
				paths, outdated, err := v.SetUp(t.Context(), pod, Facts{})
				if err != nil || len(outdated) > 0 || paths["d"] != test.want {
					t.Errorf("%s: %s is %s (%v, %v), want %s", name, test.path, paths["d"], outdated, err, test.want)
				}
			}
			if got := v.mounted(pod, &pod.Spec.Volumes[0]); got != test.want && (name != "a volume" || test.kind != nil) {
				t.Errorf("%s: %s is known as %s", name, test.path, got)
			}
		}
		if _, err := disk.Stat("/var"); err == nil {
			t.Errorf("%s: something was made below /var", test.path)
		}
		if pv.Spec.HostPath.Path != test.path {
			t.Error("the object in the cache has changed")
		}
	}
}

// A local volume may be in a directory of the kubelet, too.
func TestUsualPathOfALocalVolume(t *testing.T) {
	disk := &files.Memory{}
	if err := disk.MkdirAll("/data/kubelet/disks/a", 0o750); err != nil {
		t.Fatal(err)
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.ClaimRef, pv.Spec.Local = &v1.ObjectReference{UID: "claim"}, &v1.LocalVolumeSource{Path: "/var/lib/kubelet/disks/a"}
	v := &Manager{Root: "/data/kubelet", Paths: elsewhere(), FS: disk, Mounter: disk, Claims: oneVolume{pv}}
	paths, _, err := v.SetUp(t.Context(), podWith(nil, claimVolume(false)), Facts{})
	if err != nil || paths["d"] != "/data/kubelet/disks/a" {
		t.Errorf("the volume is %s (%v)", paths["d"], err)
	}
}

// Who has all logs of the machine has those of the pods in their places. The directories
// to mount them on are made then, and marked.
func TestLogsOfTheMachine(t *testing.T) {
	made := []string{"/var/log/pods", "/var/log/containers"}
	both := func(at string, readOnly bool) []*runtimeapi.Mount {
		return []*runtimeapi.Mount{
			{ContainerPath: at + "/pods", HostPath: "/data/logs/pods", Readonly: readOnly}, {ContainerPath: at + "/containers", HostPath: "/data/logs/containers", Readonly: readOnly},
		}
	}
	for name, test := range map[string]struct {
		path  string
		mount v1.VolumeMount
		own   string // mount path of another volume
		paths hostpath.Directories
		made  []string
		want  []*runtimeapi.Mount
	}{
		"all":              {"/var/log/", v1.VolumeMount{MountPath: "/var/log"}, "", elsewhere(), made, both("/var/log", false)},
		"read only":        {"/var/log", v1.VolumeMount{MountPath: "/host/log/", ReadOnly: true}, "", elsewhere(), made, both("/host/log", true)},
		"one place":        {"/var/log", v1.VolumeMount{MountPath: "/var/log"}, "", elsewhere(), made[:1], both("/var/log", false)},
		"no places":        {"/var/log", v1.VolumeMount{MountPath: "/var/log"}, "", elsewhere(), nil, both("/var/log", false)},
		"no directory":     {"/var/log", v1.VolumeMount{MountPath: "/var/log"}, "", elsewhere(), []string{"link"}, both("/var/log", false)[1:]},
		"one of their own": {"/var/log", v1.VolumeMount{MountPath: "/var/log"}, "/var/log/pods/", elsewhere(), made, both("/var/log", false)[1:]},
		"for the machine":  {"/var/log", v1.VolumeMount{MountPath: "/var/log", MountPropagation: new(v1.MountPropagationBidirectional)}, "", elsewhere(), nil, nil},
		"a part":           {"/var/log", v1.VolumeMount{MountPath: "/var/log", SubPath: "apt"}, "", elsewhere(), made, nil},
		"other logs":       {"/var/log/apt", v1.VolumeMount{MountPath: "/var/log"}, "", elsewhere(), nil, nil},
		"the usual ones":   {"/var/log", v1.VolumeMount{MountPath: "/var/log"}, "", hostpath.Directories{}, nil, nil},
	} {
		disk := &files.Memory{}
		if slices.Equal(test.made, []string{"link"}) {
			if err := errors.Join(disk.MkdirAll("/var/log", 0o755), disk.Symlink("/elsewhere", "/var/log/pods")); err != nil {
				t.Fatal(err)
			}
			test.made = nil
		}
		for _, dir := range test.made {
			if err := disk.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		test.mount.Name = "logs"
		pod := podWith(nil, v1.Volume{Name: "logs", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: test.path}}})
		c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{test.mount}}
		if test.own != "" {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "own", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/own"}}})
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "own", MountPath: test.own})
		}
		pod.Spec.Containers = []v1.Container{*c}
		v := &Manager{Root: "/data/kubelet", Paths: test.paths, FS: disk, Mounter: disk}
		paths, _, err := v.SetUp(t.Context(), pod, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Mounts(pod, c, paths, nil)
		if err != nil {
			t.Fatal(err)
		}
		var shown, want []string
		for _, m := range got[len(c.VolumeMounts):] { // after those that the pod asks for, in their order
			shown = append(shown, m.String())
		}
		for _, m := range test.want {
			want = append(want, m.String())
		}
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		for _, m := range test.want {
			dir := "/var/log/" + filepath.Base(m.GetContainerPath())
			own, _ := hostpath.Mark("/data/kubelet")
			for _, mark := range []string{".coracle", own} {
				_, err := disk.Stat(filepath.Join(dir, mark))
				if mode, _ := disk.Lstat(dir); !mode.IsDir() || (err == nil) == slices.Contains(test.made, dir) {
					t.Errorf("%s: %s is %s, its mark %s: %v", name, dir, mode, mark, err)
				}
			}
		}
		if _, err := disk.Stat("/var"); len(test.want)+len(test.made) == 0 && err == nil {
			t.Errorf("%s: something was made", name)
		}
	}
}

// A persistent volume of all logs of the machine has those of the pods, too.
func TestLogsOfTheMachineInPersistentVolumes(t *testing.T) {
	for name, source := range map[string]v1.PersistentVolumeSource{
		"hostPath": {HostPath: &v1.HostPathVolumeSource{Path: "/var/log"}}, "local": {Local: &v1.LocalVolumeSource{Path: "/var/log/"}},
	} {
		disk := &files.Memory{}
		if err := disk.MkdirAll("/var/log", 0o755); err != nil {
			t.Fatal(err)
		}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.ClaimRef, pv.Spec.PersistentVolumeSource = &v1.ObjectReference{UID: "claim"}, source
		v := &Manager{Root: "/data/kubelet", Paths: elsewhere(), FS: disk, Mounter: disk, Claims: oneVolume{pv}}
		pod := podWith(nil, claimVolume(false))
		paths, _, err := v.SetUp(t.Context(), pod, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Mounts(pod, &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "d", MountPath: "/logs"}}}, paths, nil)
		var shown []string
		for _, m := range got {
			shown = append(shown, m.GetContainerPath()+" "+filepath.Clean(m.GetHostPath()))
		}
		if want := []string{"/logs /var/log", "/logs/pods /data/logs/pods", "/logs/containers /data/logs/containers"}; err != nil || !slices.Equal(shown, want) {
			t.Errorf("%s: mounts %q (%v), want %q", name, shown, err, want)
		}
	}
}

// comesAndGoes is a disk on which another kubelet makes or removes a directory between two
// steps, once.
type comesAndGoes struct {
	*files.Memory
	fails error
}

func (d *comesAndGoes) MakeMarked(dir, name string, data []byte) error {
	if errors.Is(d.fails, fs.ErrExist) {
		defer func() { d.fails = nil }()
		return errors.Join(d.Memory.MakeMarked(dir, name, data), d.fails)
	}
	return d.Memory.MakeMarked(dir, name, data)
}

func (d *comesAndGoes) AddMark(dir, name string, data []byte) error {
	if errors.Is(d.fails, fs.ErrNotExist) {
		defer func() { d.fails = nil }()
		return errors.Join(d.Memory.RemoveAll(dir), d.fails)
	}
	return d.Memory.AddMark(dir, name, data)
}

// Each kubelet of the machine says that it uses the directories, also when others make or
// remove them at the same time.
func TestMarksOfSeveralKubelets(t *testing.T) {
	for name, fails := range map[string]error{"one after the other": nil, "made meanwhile": fs.ErrExist, "removed meanwhile": fs.ErrNotExist} {
		disk := &comesAndGoes{Memory: &files.Memory{}, fails: fails}
		var want []string
		for _, root := range []string{"/data/a/kubelet", "/data/b/kubelet"} {
			if fails != nil && root == "/data/b/kubelet" {
				continue
			}
			for range 2 {
				if err := makeMountPoint(disk, hostpath.PodLogs, root); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			own, _ := hostpath.Mark(root)
			want = append(want, own)
		}
		want = append(want, hostpath.MarkName)
		slices.Sort(want)
		if names, err := disk.ReadDir(hostpath.PodLogs); err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: there are %q (%v), want %q", name, names, err, want)
		}
	}
}

// A part of a volume may be a usual directory of the kubelet.
func TestUsualPathOfASubPath(t *testing.T) {
	disk := &files.Memory{}
	v := &Manager{Root: "/data/kubelet", Paths: elsewhere(), FS: disk, Mounter: disk}
	for path, mounts := range map[string]map[string]string{
		"/var/log": {"pods": "/data/logs/pods", "containers/": "/data/logs/containers"}, "/var": {"lib/kubelet": "/data/kubelet"},
	} {
		pod := podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}})
		for sub, want := range mounts {
			c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "d", MountPath: "/at", SubPath: sub}}}
			got, err := v.Mounts(pod, c, map[string]string{"d": path}, nil)
			if err != nil || len(got) != 1 || got[0].GetHostPath() != want {
				t.Errorf("%s of %s: %v, %v, want %s", sub, path, got, err, want)
			}
		}
	}
}

// binds notes the path that was bound last.
type binds struct {
	*files.Memory
	root, sub string
}

func (b *binds) BindBeneath(root, sub, target string, readOnly bool) error {
	b.root, b.sub = root, sub
	return b.Memory.BindBeneath(root, sub, target, readOnly)
}

// What is below a usual directory is resolved below the real one: pods may have put links
// there, and none of them leads out of it.
func TestSubPathBelowAUsualDirectory(t *testing.T) {
	disk := &binds{Memory: &files.Memory{}}
	v := &Manager{Root: "/data/kubelet", Paths: elsewhere(), FS: disk, Mounter: disk}
	pod := podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/var"}}})
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "d", MountPath: "/at", SubPath: "lib/kubelet/pods/a/link"}}}
	got, err := v.Mounts(pod, c, map[string]string{"d": "/var"}, nil)
	if want := "/data/kubelet/pods/uid/volume-subpaths/d/c/0"; err != nil || len(got) != 1 || got[0].GetHostPath() != want {
		t.Errorf("mounts %v (%v), want %s", got, err, want)
	}
	if disk.root != "/data/kubelet" || disk.sub != "pods/a/link" {
		t.Errorf("%q below %q was mounted", disk.sub, disk.root)
	}
}
