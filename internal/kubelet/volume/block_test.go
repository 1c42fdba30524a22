package volume

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// disks are claims of local volumes by the mode of the volumes.
type disks struct{}

func (disks) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: "claim"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}, nil
}

func (disks) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	mode := v1.PersistentVolumeBlock
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: "claim"}
	pv.Spec.Local = &v1.LocalVolumeSource{Path: "/dev/" + name}
	switch name {
	case "host":
		pv.Spec.Local, pv.Spec.HostPath, pv.Spec.VolumeMode = nil, &v1.HostPathVolumeSource{Path: "/dev/disk"}, &mode
	case "disk", "tty", "file":
		pv.Spec.VolumeMode = &mode
	}
	return pv, nil
}

// A container gets the block device of a local volume, also after a restart of
// the kubelet. A path that is not a block device is refused, and so are block
// devices where a file system is wanted.
func TestBlockDevicesOfLocalVolumes(t *testing.T) {
	disk := &files.Memory{}
	if err := disk.MkdirAll("/dev/directory", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"disk": fs.ModeDevice | 0o600, "tty": fs.ModeDevice | fs.ModeCharDevice | 0o600, "file": 0o600, "raw": fs.ModeDevice | 0o600, "text": 0o600} {
		if err := disk.WriteFile("/dev/"+name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	device := func(path string) *v1.Container {
		return &v1.Container{Name: "main", VolumeDevices: []v1.VolumeDevice{{Name: "d", DevicePath: path}}}
	}
	for name, c := range map[string]struct {
		claim     string
		readOnly  bool
		container *v1.Container
		want      string
	}{
		"a device":           {"disk", false, device("/dev/xvda"), "/dev/disk on /dev/xvda mrw"},
		"read only":          {"disk", true, device("/dev/xvda"), "/dev/disk on /dev/xvda r"},
		"a character device": {"tty", false, device("/dev/xvda"), `MapVolume.MapPodDevice failed for volume "tty" : PV tty has volumeMode Block, but /dev/tty is not a block device`},
		"a file":             {"file", false, device("/dev/xvda"), "/dev/file is not a block device"},
		"of the host":        {"host", false, device("/dev/xvda"), "only local ones can be block devices"},
		"a relative path":    {"disk", false, device("xvda"), "must be an absolute path"},
		"a device that is to have a file system": {"raw", false, device("/dev/xvda"),
			`MountVolume.NewMounter initialization failed for volume "raw" : path "/dev/raw" is a block device`},
		"a file that is to be a file system": {"text", false, device("/dev/xvda"),
			`MountVolume.NewMounter initialization failed for volume "text" : only directory and block device are supported`},
		"nothing": {"absent", false, device("/dev/xvda"),
			`MountVolume.NewMounter initialization failed for volume "absent" : path "/dev/absent" does not exist`},
		"no such volume": {"disk", false, &v1.Container{Name: "main", VolumeDevices: []v1.VolumeDevice{{Name: "e", DevicePath: "/x"}}}, `cannot find volume "e"`},
		"a file system":  {"directory", false, device("/dev/xvda"), "volume d has volumeMode Filesystem, but is specified in volumeDevices"},
		"a mount of a device": {"disk", false, &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "d", MountPath: "/d"}}},
			"volume d has volumeMode Block, but is specified in volumeMounts"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c.claim, ReadOnly: c.readOnly}}})
			group := int64(2000) // owns files only
			pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
			root := "/" + strings.ReplaceAll(name, " ", "-")
			got := ""
			for range 2 { // the second is another kubelet
				v := &Manager{Root: root, FS: disk, Mounter: disk, Claims: disks{}}
				got = passed(t, v, pod, c.container)
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A device that takes the place of the one that the pod was given is refused, by
// this kubelet and by the next one, until the machine is started again.
func TestReplacedBlockDevice(t *testing.T) {
	disk := &files.Memory{}
	put := func(path, content string, mode fs.FileMode) {
		t.Helper()
		if err := errors.Join(disk.MkdirAll(filepath.Dir(path), 0o755), disk.WriteFile(path, []byte(content), mode)); err != nil {
			t.Fatal(err)
		}
	}
	const bootID = "/proc/sys/kernel/random/boot_id"
	put(bootID, "first", 0o444)
	put("/dev/disk", "", fs.ModeDevice|0o600)
	pod := podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}})
	c := &v1.Container{Name: "main", VolumeDevices: []v1.VolumeDevice{{Name: "d", DevicePath: "/dev/xvda"}}}
	start := func() *Manager {
		return &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: disks{}, CSI: csi.New(csi.Config{Root: "/k", FS: disk, Mounter: disk})}
	}
	v := start()
	const given, replaced = "/dev/disk on /dev/xvda mrw", "volume d: /dev/disk is another block device than the one that the pod was given"
	want := func(want string) {
		t.Helper()
		if got := passed(t, v, pod, c); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	want(given)
	put("/dev/disk", "", fs.ModeDevice|0o600)
	want(replaced)
	v = start()
	want(replaced)
	put(bootID, "second", 0o444)
	v = start()
	want(given)
	want(given)
	if err := v.TearDown(t.Context(), pod.UID); err != nil || len(v.devices.known) > 0 {
		t.Errorf("%d devices are held after the pod, %v", len(v.devices.known), err)
	}
}

// exhausted is a machine on which so many devices can be opened, and then no file.
type exhausted struct {
	files.Memory
	devices int
}

func (e *exhausted) HoldDevice(path string) (string, io.Closer, error) {
	if e.devices--; e.devices < 0 {
		return "", nil, syscall.EMFILE
	}
	return e.Memory.HoldDevice(path)
}

func (e *exhausted) ReadFile(path string, limit int64) ([]byte, error) {
	if e.devices < 0 {
		return nil, syscall.EMFILE
	}
	return e.Memory.ReadFile(path, limit)
}

// A device that cannot be held fails its volume, also if nothing can be read any more.
func TestBlockDeviceThatCannotBeHeld(t *testing.T) {
	disk := &exhausted{devices: 1} // for the check of what the path is
	if err := errors.Join(disk.MkdirAll("/dev", 0o755), disk.WriteFile("/dev/disk", nil, fs.ModeDevice|0o600)); err != nil {
		t.Fatal(err)
	}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk, Claims: disks{}}
	pod := podWith(nil, v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}})
	const want = `MapVolume.MapPodDevice failed for volume "disk" : too many open files`
	if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// passed says what a container gets of its volumes.
func passed(t *testing.T, v *Manager, pod *v1.Pod, c *v1.Container) string {
	t.Helper()
	paths, _, err := v.SetUp(t.Context(), pod, Facts{})
	if err == nil {
		_, err = v.Mounts(pod, c, paths, nil)
	}
	if err != nil {
		return err.Error()
	}
	devices, err := v.Devices(pod, c, paths)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, d := range devices {
		out = append(out, d.GetHostPath()+" on "+d.GetContainerPath()+" "+d.GetPermissions())
	}
	return strings.Join(out, ", ")
}

// slowDevice takes until it is released to be closed.
type slowDevice chan struct{}

func (d slowDevice) Close() error { <-d; return nil }

// TestDeviceThatIsSlowToClose checks that a device whose data is still written
// keeps neither other pods from ending nor the kubelet, and that its pod waits.
func TestDeviceThatIsSlowToClose(t *testing.T) {
	var d heldDevices
	slow, quick := make(slowDevice), make(slowDevice)
	close(quick)
	d.add(podVolume{"a", "v"}, "1", slow)
	d.add(podVolume{"b", "v"}, "2", quick)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := d.release(ended, "a"); !errors.Is(err, context.Canceled) {
			t.Fatalf("released a device that is not closed: %v", err)
		}
	}
	if err := d.release(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	close(slow)
	for range 2 {
		if err := d.release(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	}
	if d.get(podVolume{"a", "v"}) != nil {
		t.Error("the device is still known")
	}
}
