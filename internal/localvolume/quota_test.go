package localvolume

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// limits is a file system in memory. All its sizes are in bytes.
type limits struct {
	size int64
	off  bool // limits are not enforced

	mu    sync.Mutex       // guards what follows
	taken int64            // by other files
	set   map[string]int64 // limits, by the name of the directory
}

// free implements fileSystem.
func (l *limits) free(string) (size, free int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.size - l.taken, nil
}

// take sets how much other files take.
func (l *limits) take(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = bytes
}

// enforces implements fileSystem.
func (l *limits) enforces(string) bool { return !l.off }

// limit implements fileSystem.
func (l *limits) limit(dir string, bytes int64) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		l.set = map[string]int64{}
	}
	l.set[filepath.Base(dir)] = bytes
	if bytes == 0 {
		delete(l.set, filepath.Base(dir))
	}
	return nil
}

// limited implements fileSystem.
func (l *limits) limited(dir string) (limit, used int64, err error) {
	_, err = os.Stat(dir)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.set[filepath.Base(dir)], 0, err
}

// all returns the limits.
func (l *limits) all() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.set) == 0 {
		return map[string]int64{}
	}
	return maps.Clone(l.set)
}

func waiting(c *storage.StorageClass) {
	c.VolumeBindingMode = new(storage.VolumeBindingWaitForFirstConsumer)
}

// A volume's directory has the size of the claim as its limit, grows with it as
// far as the disk has room, and loses the limit when it is removed.
func TestSizeIsEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &limits{size: 10 << 30}
		c := startOn(t, disk, filepath.Join(t.TempDir(), "volumes"), class(waiting), requesting("n", nil))
		controllertest.Eventually(t, func() []string { return names(c) }, []string{"pvc-1234"})
		controllertest.Eventually(t, disk.all, map[string]int64{"pvc-1234": 1 << 30})

		requestSize(t, c, "1Gi")
		requestSize(t, c, "3Gi")
		controllertest.Eventually(t, disk.all, map[string]int64{"pvc-1234": 3 << 30})
		c.DrainEvents()
		requestSize(t, c, "30Gi")
		controllertest.Eventually(t, func() bool {
			return slices.Contains(c.DrainEvents(), "Warning VolumeResizeFailed the disk is too small: 7Gi are free, and 27Gi are needed")
		}, true)
		v := volumes(c)["pvc-1234"]
		if got := v.Spec.Capacity.Storage().String(); got != "3Gi" || disk.all()["pvc-1234"] != 3<<30 {
			t.Errorf("capacity %s, limits %v; want those that hold", got, disk.all())
		}

		v.Status.Phase = v1.VolumeReleased
		if _, err := c.Fake.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), &v, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, disk.all, map[string]int64{})
	})
}

// A claim that the disk has no room for makes no directory, and the scheduler
// chooses another node. What other volumes may still take is not free.
func TestDiskIsTooSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "volumes")
		first := requesting("n", func(c *v1.PersistentVolumeClaim) {
			c.Name, c.UID = "first", "first"
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("6Gi")
		})
		c := startOn(t, &limits{size: 10 << 30}, dir, class(waiting), first)
		controllertest.Eventually(t, func() []string { return names(c) }, []string{"pvc-first"})
		claims := c.Fake.CoreV1().PersistentVolumeClaims("default")
		second := requesting("n", func(c *v1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("5Gi")
		})
		if _, err := claims.Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() bool {
			claim, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
			return err == nil && !metav1.HasAnnotation(claim.ObjectMeta, volume.AnnSelectedNode)
		}, true)
		time.Sleep(time.Minute)
		failures := slices.DeleteFunc(c.DrainEvents(), func(e string) bool { return !strings.HasPrefix(e, "Warning") })
		want := []string{`Warning ProvisioningFailed failed to provision volume with StorageClass "local": the disk is too small: 4Gi are free, and 5Gi are needed`}
		if !slices.Equal(failures, want) {
			t.Errorf("warnings %q, want %q", failures, want)
		}
		if got := entries(t, dir); !slices.Equal(got, []string{"pvc-first"}) {
			t.Errorf("directories = %v", got)
		}
	})
}

// The scheduler learns of the free space, in hundredths of the disk: without
// limits, of what is free, and that a claim may be larger than the disk; with
// limits, of what volumes do not take.
func TestCapacityIsPublished(t *testing.T) {
	for _, test := range []struct {
		name        string
		off         bool
		request     string
		first, then string
	}{
		{"limits", false, "10Gi", "89Gi at most <nil>", "79Gi at most <nil>"},
		{"no limits", true, "1Ti", "99Gi at most 9223372036854775807", "89Gi at most 9223372036854775807"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &limits{size: 100 << 30, off: test.off, taken: 1 << 20}
				former := class(func(c *storage.StorageClass) { c.Name, c.Provisioner = "former", formerName })
				claim := requesting("n", func(c *v1.PersistentVolumeClaim) {
					c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse(test.request)
				})
				k := startOn(t, disk, filepath.Join(t.TempDir(), "volumes"), class(waiting), former, claim)
				published := func() []string {
					list, err := k.Fake.StorageV1().CSIStorageCapacities(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
					if err != nil {
						t.Fatal(err)
					}
					all := []string{}
					for _, one := range list.Items {
						if one.StorageClassName == DefaultClass {
							continue
						}
						all = append(all, strings.Join([]string{
							one.Namespace, one.StorageClassName, one.NodeTopology.MatchLabels[v1.LabelHostname], one.OwnerReferences[0].Name,
							one.Capacity.String(), "at most", one.MaximumVolumeSize.String(),
						}, " "))
					}
					return all
				}
				controllertest.Eventually(t, published, []string{"kube-system local n.example n " + test.first})
				controllertest.Eventually(t, func() []string { return names(k) }, []string{"pvc-1234"})
				disk.take(11<<30 - 1<<20)
				controllertest.Eventually(t, published, []string{"kube-system local n.example n " + test.then})
				driver, err := k.Fake.StorageV1().CSIDrivers().Get(t.Context(), Name, metav1.GetOptions{})
				if err != nil || driver.Spec.StorageCapacity == nil || !*driver.Spec.StorageCapacity {
					t.Errorf("driver %+v, %v; want one whose capacities the scheduler reads", driver, err)
				}
				if err := k.Fake.StorageV1().StorageClasses().Delete(t.Context(), "local", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				controllertest.Eventually(t, published, []string{})
			})
		})
	}
}

// A class of a cluster from before capacities keeps its provisioner's name.
func TestFormerName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former := class(func(c *storage.StorageClass) { c.Provisioner = formerName })
		claim := requesting("n", func(c *v1.PersistentVolumeClaim) { c.Annotations[volume.AnnStorageProvisioner] = formerName })
		c := start(t, filepath.Join(t.TempDir(), "volumes"), former, claim)
		controllertest.Eventually(t, func() []string { return names(c) }, []string{"pvc-1234"})
		if got := volumes(c)["pvc-1234"].Annotations[volume.AnnDynamicallyProvisioned]; got != formerName {
			t.Errorf("provisioned by %q, want the name in the class", got)
		}
	})
}

// withoutCapability calls f in a thread without a capability, as containers are. The
// thread ends with the call.
func withoutCapability(capability int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			result <- err
			return
		}
		data[capability/32].Effective &^= 1 << (capability % 32)
		if err := unix.Capset(&header, &data[0]); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

// A directory has no project but those that it can get: that of another volume is not its own.
func TestProjectsOfDirectories(t *testing.T) {
	const dir = "/volumes/pvc-1"
	for offset, want := range map[uint32]bool{0: true, ofDirectory - 1: true, ofDirectory: false, projects - 1: false} {
		if got := isProjectOf(dir, firstProject+(offsetOf(dir)+offset)%projects); got != want {
			t.Errorf("project %d after the first one: %t, want %t", offset, got, want)
		}
	}
	for _, project := range []uint32{0, 1, firstProject - 1, firstProject + projects, firstProject + projects + offsetOf(dir)} {
		if isProjectOf(dir, project) {
			t.Errorf("project %d is that of a volume", project)
		}
	}
	if isProjectOf("/volumes/pvc-2", firstProject+offsetOf(dir)) {
		t.Error("two directories have the same project")
	}
}

// A file system with project quotas ends writes beyond the limit of a directory,
// and each directory has a project of its own.
func TestProjectQuotas(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	image, root := filepath.Join(dir, "image"), filepath.Join(dir, "root")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20), os.Mkdir(root, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"mkfs.ext4 -q -O quota,project " + image, "mount -o loop,prjquota " + image + " " + root} {
		words := strings.Fields(command)
		if output, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("this machine has no project quotas: %s: %v: %s", command, err, output)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	q := projectQuotas{}
	if !q.enforces(root) || q.enforces("/proc") {
		t.Fatalf("limits are enforced: %t, and in /proc: %t", q.enforces(root), q.enforces("/proc"))
	}
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	for _, dir := range []string{a, b} {
		if err := errors.Join(os.Mkdir(dir, 0o777), q.limit(dir, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(dir string, bytes int) error {
		return withoutCapability(unix.CAP_SYS_RESOURCE, func() error {
			return os.WriteFile(filepath.Join(dir, "file"), make([]byte, bytes), 0o600)
		})
	}
	if err := write(a, 2<<20); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("writing 2 MiB where 1 MiB is allowed: %v", err)
	}
	if err := write(b, 1<<19); err != nil {
		t.Errorf("writing beside a directory that is full: %v", err)
	}
	if err := errors.Join(q.limit(a, 4<<20), write(a, 2<<20)); err != nil {
		t.Errorf("writing 2 MiB where 4 MiB are allowed: %v", err)
	}
	if limit, used, err := q.limited(a); err != nil || limit != 4<<20 || used < 2<<20 {
		t.Errorf("limit %d, used %d, %v", limit, used, err)
	}
	// The owner of a directory, as root in a container, can give it the project of another one.
	f, err := os.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	var of attributes
	err = control(f, getAttributes, &of)
	of.project = firstProject + offsetOf(a)
	if err := errors.Join(err, control(f, setAttributes, &of), f.Close()); err != nil {
		t.Fatal(err)
	}
	if limit, used, err := q.limited(b); err != nil || limit != 0 || used != 0 {
		t.Errorf("limit %d, used %d, %v of a directory with the project of another one", limit, used, err)
	}
	if err := q.limit(b, 0); err != nil {
		t.Error(err)
	}
	if limit, _, err := q.limited(a); err != nil || limit != 4<<20 {
		t.Errorf("limit %d, %v after that of a directory with the same project was removed", limit, err)
	}
	if err := q.limit(a, 0); err != nil {
		t.Error(err)
	}
	if limit, _, err := q.limited(a); err != nil || limit != 0 {
		t.Errorf("limit %d, %v after it was removed", limit, err)
	}
}
