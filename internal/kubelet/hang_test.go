package kubelet

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// hang is one call that does not return before release is closed.
type hang struct {
	at      string // the name of the call
	release chan struct{}
	begun   atomic.Bool
}

func (h *hang) call(name string) {
	if name == h.at {
		h.begun.Store(true)
		<-h.release
	}
}

// hangingDisk hangs on the folders of pods, or on the folder of the pod gone.
type hangingDisk struct {
	files.FS
	*hang
}

func (d hangingDisk) ReadDir(path string) ([]string, error) {
	if path == "/var/lib/kubelet/pods" {
		d.call("ReadDir")
	}
	return d.FS.ReadDir(path)
}

func (d hangingDisk) RemoveAll(path string) error {
	if strings.Contains(path, gone) {
		d.call("RemoveAll")
	}
	return d.FS.RemoveAll(path)
}

// hangingRuntime hangs over the containers of the pod gone.
type hangingRuntime struct {
	*inmemorytest.Runtime
	*hang
}

func (r hangingRuntime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if filter.GetLabelSelector()[kubelettypes.KubernetesPodUIDLabel] == gone {
		r.call("ListContainers")
	}
	return r.Runtime.ListContainers(ctx, filter)
}

// gone is the uid of a pod that was deleted while no kubelet ran.
const gone = "8d3f9f4e-0000-4000-8000-1de1e7ed0001"

// A disk or a runtime that hangs over one pod does not keep others from running.
func TestTheSyncLoopDoesNoIO(t *testing.T) {
	for _, at := range []string{"ReadDir", "RemoveAll", "ListContainers"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				h := &hang{at: at, release: make(chan struct{})}
				b.configure = func(c *Config) {
					c.Files, c.Runtime = hangingDisk{c.Files, h}, hangingRuntime{b.runtime, h}
				}
				if err := b.files.MkdirAll("/var/lib/kubelet/pods/"+gone, fs.FileMode(0o750)); err != nil {
					t.Fatal(err)
				}
				b.start()
				defer func() { b.stop() }()
				b.after(10 * time.Second)
				if !h.begun.Load() {
					t.Error("the remains of removed pods were not looked for")
				}
				b.create(pod("web"))
				b.after(10 * time.Second)
				if got := b.get("web").Status.Phase; got != v1.PodRunning {
					t.Errorf("another pod is %s", got)
				}
				close(h.release)
				b.after(10 * time.Second)
				if left, _ := b.files.ReadDir("/var/lib/kubelet/pods"); slices.Contains(left, gone) {
					t.Errorf("the folder of the pod that is gone stays: %v", left)
				}
			})
		})
	}
}

// unsyncedDisk never finishes writes of data that has to survive a loss of
// power.
type unsyncedDisk struct {
	files.FS
	*hang
}

func (d unsyncedDisk) Replace(path string, data []byte, perm fs.FileMode) error {
	if strings.HasPrefix(path, "/var/lib/kubelet/pods") || strings.HasPrefix(path, "/var/log/pods") {
		d.call("Replace")
	}
	return d.FS.Replace(path, data, perm)
}

// The kubelet's records of each pod do not have to survive a loss of power,
// which ends the pod's containers too: its start waits for no disk.
func TestStartDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		h := &hang{at: "Replace", release: make(chan struct{})}
		b.configure = func(c *Config) { c.Files = unsyncedDisk{c.Files, h} }
		b.start()
		defer func() { b.stop() }()
		defer close(h.release)
		b.create(pod("web"))
		b.after(time.Second)
		if b.live("main") == "" {
			t.Errorf("the pod waits: %+v", b.get("web").Status)
		}
	})
}
