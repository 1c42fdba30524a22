package kubelet

import (
	"bytes"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// fullDisk is a disk that has no room for new data, or no inodes for new files,
// while it is full.
type fullDisk struct {
	files.FS
	full, noInodes *atomic.Bool
}

// check returns the error of a write of that many bytes.
func (d fullDisk) check(path string, bytes int) error {
	_, err := d.Lstat(path)
	if d.full.Load() && bytes > 0 || d.noInodes.Load() && err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: unix.ENOSPC}
	}
	return nil
}

func (d fullDisk) MkdirAll(path string, perm fs.FileMode) error {
	if _, err := d.Stat(path); err == nil {
		return nil
	}
	if err := d.check(path, 1); err != nil {
		return err
	}
	return d.FS.MkdirAll(path, perm)
}

// WriteFile truncates the file before it fails, as the kernel does.
func (d fullDisk) WriteFile(path string, data []byte, perm fs.FileMode) error {
	if err := d.check(path, len(data)); err != nil {
		if d.full.Load() {
			_ = d.FS.WriteFile(path, nil, perm)
		}
		return err
	}
	return d.FS.WriteFile(path, data, perm)
}

func (d fullDisk) Replace(path string, data []byte, perm fs.FileMode) error {
	if now, err := d.ReadFile(path, int64(len(data))); err == nil && bytes.Equal(now, data) {
		return nil
	}
	if err := d.check(path+".new", len(data)); err != nil {
		return err
	}
	return d.FS.Replace(path, data, perm)
}

func (d fullDisk) ReplaceUnsynced(path string, data []byte, perm fs.FileMode) error {
	return d.Replace(path, data, perm)
}

func (d fullDisk) Symlink(target, path string) error {
	if err := d.check(path, 1); err != nil {
		return err
	}
	return d.FS.Symlink(target, path)
}

// While the disk of a node is full, its pods keep running and deleted pods go.
// Once it has room, everything is as if it had always had.
func TestFullDisk(t *testing.T) {
	for name, test := range map[string]struct{ full, noInodes, restarted bool }{
		"full": {full: true}, "no inodes": {noInodes: true},
		"full, restarted": {full: true, restarted: true}, "no inodes, restarted": {noInodes: true, restarted: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				disk := fullDisk{b.files, &atomic.Bool{}, &atomic.Bool{}}
				b.configure = func(c *Config) { c.Files = disk }
				b.start()
				defer func() { b.stop() }()
				b.testDisk(disk, test.full, test.noInodes, test.restarted)
			})
		})
	}
}

// withConfig makes a pod mount the ConfigMap config and name its container as
// itself.
func withConfig(p *v1.Pod) {
	p.Spec.Containers[0].Name = p.Name
	p.Spec.Volumes = []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "config"}},
	}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "config", MountPath: "/config"}}
}

func (b *bench) testDisk(disk fullDisk, full, noInodes, restarted bool) {
	t := b.t
	maps := b.api.CoreV1().ConfigMaps("default")
	config := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "config"}, Data: map[string]string{"key": "old"}}
	if _, err := maps.Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	value := func(pod string) string {
		path := "/var/lib/kubelet/pods/uid-" + pod + "/volumes/kubernetes.io~configmap/config/key"
		raw, _ := b.files.ReadFile(path, 1<<10) // "" if it is missing
		return string(raw)
	}
	for _, name := range []string{"stays", "goes", "crashes"} {
		b.create(pod(name, withConfig))
	}
	b.after(time.Minute)
	stays := b.live("stays")
	if stays == "" || value("stays") != "old" {
		t.Fatalf("before: %q, %q", stays, value("stays"))
	}
	disk.full.Store(full)
	disk.noInodes.Store(noInodes)
	if restarted {
		b.stop()
		b.start()
	}
	config.Data["key"] = "new"
	if _, err := maps.Update(t.Context(), config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.create(pod("comes", withConfig))
	b.runtime.Exit(b.live("crashes"), 1)
	b.delete("goes", 30)
	b.after(5 * time.Minute)
	if b.get("goes") != nil || b.live("goes") != "" {
		t.Error("a deleted pod does not go while the disk is full")
	}
	if id := b.live("stays"); id != stays || value("stays") != "old" {
		t.Errorf("while the disk is full: container %s instead of %s, volume %q", id, stays, value("stays"))
	}
	disk.full.Store(false)
	disk.noInodes.Store(false)
	b.after(5 * time.Minute)
	for _, name := range []string{"stays", "crashes", "comes"} {
		if b.live(name) == "" || conditionOf(b.get(name), v1.PodReady) != v1.ConditionTrue || value(name) != "new" {
			t.Errorf("%s, after the disk was full: container %q, volume %q, %+v", name, b.live(name), value(name), b.get(name).Status)
		}
	}
	if id := b.live("stays"); id != stays {
		t.Errorf("container %s instead of %s", id, stays)
	}
}
