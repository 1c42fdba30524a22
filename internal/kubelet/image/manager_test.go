package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
)

const imageFS, layersFS = "/var/lib/runtime/images", "/var/lib/runtime/layers"

// newManager returns a Manager of a machine whose disk is half full and whose
// image file system is as given. Images are removed two minutes after they were
// found, or a pod has asked for them.
func newManager(runtime *inmemorytest.Runtime, images node.FileSystem) *Manager {
	serial, qps, low, high := true, int32(0), int32(80), int32(85)
	runtime.Images().SetRoot(imageFS)
	return New(Config{
		Configuration: &kubeletconfig.KubeletConfiguration{
			SerializeImagePulls: &serial, RegistryPullQPS: &qps, ImageGCHighThresholdPercent: &high, ImageGCLowThresholdPercent: &low,
			ImageMinimumGCAge: metav1.Duration{Duration: 2 * time.Minute},
		},
		RootDirectory: "/var/lib/kubelet", NodeName: "alpha", Runtime: runtime, Images: runtime.Images(), Files: &files.Memory{},
		Machine: &node.Fixed{Left: node.Free{DiskBytes: 50 << 30, DiskTotal: 100 << 30}, Mounts: map[string]node.FileSystem{imageFS: images}},
		Active:  func() []*v1.Pod { return nil }, Known: func() []*v1.Pod { return nil }, Recorder: record.NewFakeRecorder(100),
	})
}

// run runs the garbage collection of a Manager for d.
func run(t *testing.T, m *Manager, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	m.Run(ctx)
}

func imageNames(t *testing.T, runtime *inmemorytest.Runtime) (names []string) {
	t.Helper()
	images, err := runtime.Images().ListImages(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		names = append(names, i.GetRepoTags()[0])
	}
	slices.Sort(names)
	return names
}

// startContainer runs a container of an image in the pod uid and returns its id.
func startContainer(t *testing.T, runtime *inmemorytest.Runtime, image string, mounts ...*runtimeapi.Mount) string {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "uid"}}
	sandbox, err := runtime.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := runtime.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: image},
		Labels: map[string]string{kubelettypes.KubernetesPodUIDLabel: "uid"}, Mounts: mounts,
	}, config)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestCollectMeasuresTheImageFileSystem(t *testing.T) {
	for name, test := range map[string]struct {
		images node.FileSystem
		want   int
	}{
		"full":  {node.FileSystem{Bytes: 10 << 30, Total: 100 << 30}, 0},
		"empty": {node.FileSystem{Bytes: 90 << 30, Total: 100 << 30}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := inmemorytest.New()
				runtime.AddImage("example.com/unused:1", 20<<30)
				m := newManager(runtime, test.images)
				run(t, m, 2*collectPeriod+time.Second)
				if got := imageNames(t, runtime); len(got) != test.want {
					t.Errorf("images %v are left, want %d", got, test.want)
				}
			})
		})
	}
}

// What the images and the layers use is what the runtime says, if it does.
func TestUsed(t *testing.T) {
	runtime := inmemorytest.New()
	m := newManager(runtime, node.FileSystem{})
	runtime.Images().SetLayersRoot(layersFS)
	if images, layers := m.Used(t.Context()); images.GetFsId().GetMountpoint() != imageFS || layers.GetFsId().GetMountpoint() != layersFS {
		t.Errorf("the images are on %v, the layers on %v", images, layers)
	}
	runtime.Images().SetRoot("")
	runtime.Images().SetLayersRoot("")
	if images, layers := m.Used(t.Context()); images != nil || layers != nil {
		t.Errorf("a runtime that does not say it uses %v and %v", images, layers)
	}
}

// Images and the writable layers of containers are where the runtime says, as far as the
// kubelet finds that.
func TestFileSystems(t *testing.T) {
	off, err := feature.Parse([]string{"KubeletSeparateDiskGC=false"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		images, layers         string
		features               *feature.Set
		wantImages, wantLayers uint64 // devices
	}{
		"nothing is reported":       {"", "", nil, 1, 1},
		"images alone":              {imageFS, "", nil, 2, 2},
		"images with layers":        {imageFS, imageFS, nil, 2, 2},
		"layers apart":              {imageFS, layersFS, nil, 2, 3},
		"layers apart, feature off": {imageFS, layersFS, off, 2, 2},
		"layers that are not here":  {imageFS, "/missing", nil, 2, 2},
		"images that are not here":  {"/missing", layersFS, nil, 1, 3},
	} {
		runtime := inmemorytest.New()
		m := newManager(runtime, node.FileSystem{})
		runtime.Images().SetRoot(test.images)
		runtime.Images().SetLayersRoot(test.layers)
		m.config.Features = test.features
		m.config.Machine = &node.Fixed{
			Left:   node.Free{DiskTotal: 10, DiskDevice: 1},
			Mounts: map[string]node.FileSystem{imageFS: {Total: 20, Device: 2}, layersFS: {Total: 30, Device: 3}},
		}
		images, layers, err := m.FileSystems(t.Context())
		if err != nil || images.Device != test.wantImages || layers.Device != test.wantLayers || uint64(images.Total) != 10*images.Device {
			t.Errorf("%s: images on %+v, layers on %+v, %v", name, images, layers, err)
		}
	}
}

// Events say how full the disk is if too few images are unused, and that it stays so.
func TestImagesThatDoNotSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := inmemorytest.New()
		runtime.AddImage("example.com/unused:1", 1<<30)
		m := newManager(runtime, node.FileSystem{Bytes: 10 << 30, Total: 100 << 30})
		run(t, m, 2*collectPeriod+time.Second)
		var got []string
		for all := m.config.Recorder.(*record.FakeRecorder).Events; len(all) > 0; {
			got = append(got, <-all)
		}
		full := func(reason string, freed int) string {
			return fmt.Sprintf("Warning %s Insufficient free disk space on the node's image filesystem (90%% of 100.0 GiB used). "+
				"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
				"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", reason, freed)
		}
		want := []string{full("FreeDiskSpaceFailed", 1<<30), full("FreeDiskSpaceFailed", 0), full("ImageGCFailed", 0)}
		if !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// A high threshold of 100 percent turns the collection off, also on a full disk.
func TestCollectIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := inmemorytest.New()
		runtime.AddImage("example.com/unused:1", 20<<30)
		m := newManager(runtime, node.FileSystem{Bytes: 0, Total: 100 << 30})
		*m.config.Configuration.ImageGCHighThresholdPercent = 100
		run(t, m, 2*collectPeriod+time.Second)
		if got := imageNames(t, runtime); len(got) != 1 {
			t.Errorf("images %v are left, want the one that is not used", got)
		}
	})
}

// An image counts as used until its last container is gone, not until it was
// pulled: others are removed before. It need not wait then, so that images of containers
// that were removed because the disk is short go before any pod.
func TestImagesInUseAreTouchedEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const used, idle = "example.com/used:1", "example.com/idle:1"
		runtime := inmemorytest.New()
		runtime.AddImage(used, 1<<30)
		runtime.AddImage(idle, 1<<30)
		m := newManager(runtime, node.FileSystem{Bytes: 90 << 30, Total: 100 << 30})
		id := startContainer(t, runtime, used)
		run(t, m, 10*collectPeriod+time.Second)
		if err := runtime.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		for _, left := range [][]string{{used}, nil} {
			freed := m.Free(t.Context(), 1)
			if got := imageNames(t, runtime); freed != 1<<30 || !slices.Equal(got, left) {
				t.Errorf("%d bytes were freed, and left are %q, want %q", freed, got, left)
			}
		}
	})
}

// The minimum age counts since an image was found, or a pod has asked for it last: the
// container may not be there yet.
func TestMinimumAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "example.com/app:1"
		runtime := inmemorytest.New()
		runtime.AddImage(name, 1<<30)
		m := newManager(runtime, node.FileSystem{Bytes: 90 << 30, Total: 100 << 30})
		for _, step := range []struct {
			what string
			wait time.Duration
			ask  bool
			want int64
		}{
			{"found", 0, false, 0}, {"not old enough", time.Minute, false, 0}, {"asked for", time.Hour, true, 0},
			{"a minute later", time.Minute, false, 0}, {"old enough", time.Minute, false, 1 << 30},
		} {
			time.Sleep(step.wait)
			if step.ask {
				m.touch("sha256:" + name) // as Ensure does
			}
			if freed := m.Free(t.Context(), 1); freed != step.want {
				t.Errorf("%s: %d bytes were freed, want %d", step.what, freed, step.want)
			}
		}
	})
}

// stuckImages are images that cannot be removed, such as on a disk that is read-only.
type stuckImages struct{ *inmemorytest.Images }

func (stuckImages) RemoveImage(context.Context, *runtimeapi.ImageSpec) error {
	return errors.New("read-only file system")
}

// Images that cannot be removed, and why, are in an event if that happens twice. Those
// that were removed are counted.
func TestImagesThatCannotBeRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		disk   node.FileSystem
		oldest time.Duration
		want   string
		reason string
	}{
		"full": {node.FileSystem{Bytes: 10 << 30, Total: 100 << 30}, 0,
			"wanted to free 10737418240 bytes, but freed 0 bytes space with errors in image deletion: remove image sha256:example.com/old:1: read-only file system", forSpace},
		"old": {node.FileSystem{Bytes: 90 << 30, Total: 100 << 30}, 4 * time.Minute,
			"wanted to free images older than 4m0s, encountered errors in image deletion: remove image sha256:example.com/old:1: read-only file system", forAge},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := inmemorytest.New()
				runtime.AddImage("example.com/old:1", 10<<30)
				m := newManager(runtime, test.disk)
				m.config.Configuration.ImageMaximumGCAge.Duration = test.oldest
				m.config.Images = stuckImages{runtime.Images()}
				run(t, m, 2*collectPeriod+time.Second)
				all := m.config.Recorder.(*record.FakeRecorder).Events
				if len(all) != 1 {
					t.Fatalf("%d events, want one", len(all))
				}
				if got, want := <-all, "Warning ImageGCFailed "+test.want; got != want {
					t.Errorf("event %q, want %q", got, want)
				}
				collected := m.metrics.collected.WithLabelValues(test.reason)
				if n := testutil.ToFloat64(collected); n != 0 {
					t.Errorf("%v images were collected", n)
				}
				m.config.Images = runtime.Images()
				run(t, m, collectPeriod+time.Second)
				if n := testutil.ToFloat64(collected); n != 1 {
					t.Errorf("%v images were collected, want one", n)
				}
			})
		})
	}
}

// An error about many images that cannot be removed is one line, which names some of them.
func TestManyImagesThatCannotBeRemoved(t *testing.T) {
	runtime := inmemorytest.New()
	m := newManager(runtime, node.FileSystem{})
	m.config.Images = stuckImages{runtime.Images()}
	var all []*runtimeapi.Image
	for i := range mostFailures + 2 {
		all = append(all, &runtimeapi.Image{Id: fmt.Sprintf("image-%d", i)})
	}
	_, err := m.remove(t.Context(), all, forSpace)
	if err == nil {
		t.Fatal("images that cannot be removed are no error")
	}
	text := err.Error()
	if strings.Count(text, "read-only") != mostFailures || !strings.HasPrefix(text, "[remove image image-0: ") || !strings.HasSuffix(text, ", and 2 more]") || strings.Contains(text, "\n") {
		t.Errorf("the error is %q", text)
	}
}

// Sizes of disks are shown in the largest unit that leaves one.
func TestSizeText(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 500 << 20: "500.0 MiB", 1200 << 20: "1.2 GiB", 1 << 40: "1.0 TiB", 5 << 50: "5120.0 TiB"} {
		if got := sizeText(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

// An image that a container has mounted as a volume is in use until the container is
// gone, also if the reference of the pod means another one by now.
func TestMountedImagesAreInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before, now = "example.com/before:1", "example.com/now:1"
		runtime := inmemorytest.New()
		runtime.AddImage(before, 1<<30)
		runtime.AddImage(now, 1<<30)
		m := newManager(runtime, node.FileSystem{Bytes: 90 << 30, Total: 100 << 30})
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Spec: v1.PodSpec{Volumes: []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: now}}},
		}}}
		active := []*v1.Pod{pod}
		m.config.Active, m.config.Known = func() []*v1.Pod { return active }, func() []*v1.Pod { return []*v1.Pod{pod} }
		id := startContainer(t, runtime, "example.com/app:1", &runtimeapi.Mount{ContainerPath: "/data", Image: &runtimeapi.ImageSpec{Image: "sha256:" + before}})
		run(t, m, collectPeriod+time.Second)
		for _, step := range []struct {
			what string
			next func()
			left []string
		}{
			{"while the pod runs", func() {}, []string{before, now}},
			{"after its end", func() { active = nil }, []string{before}},
			{"without its container", func() {
				if err := runtime.RemoveContainer(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}, nil},
		} {
			step.next()
			m.Free(t.Context(), 1<<40)
			if got := imageNames(t, runtime); !slices.Equal(got, step.left) {
				t.Errorf("%s: left are %q, want %q", step.what, got, step.left)
			}
		}
	})
}

// Images that have not been used for imageMaximumGCAge are removed, however
// much room there is.
func TestOldImagesAreRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		oldest time.Duration
		want   []string
	}{
		"no maximum": {0, []string{"example.com/old:1", "example.com/used:1"}},
		"an hour":    {time.Hour, []string{"example.com/used:1"}},
		"a day":      {24 * time.Hour, []string{"example.com/old:1", "example.com/used:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := inmemorytest.New()
				runtime.AddImage("example.com/old:1", 1<<30)
				runtime.AddImage("example.com/used:1", 1<<30)
				startContainer(t, runtime, "example.com/used:1")
				m := newManager(runtime, node.FileSystem{Bytes: 90 << 30, Total: 100 << 30})
				m.config.Configuration.ImageMaximumGCAge.Duration = test.oldest
				run(t, m, 2*time.Hour)
				if got := imageNames(t, runtime); !slices.Equal(got, test.want) {
					t.Errorf("left are %q, want %q", got, test.want)
				}
			})
		})
	}
}

func TestUseOfVanishedImagesIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "example.com/gone:1"
		runtime := inmemorytest.New()
		runtime.AddImage(name, 1<<30)
		m := newManager(runtime, node.FileSystem{Bytes: 90 << 30, Total: 100 << 30})
		m.touch("sha256:" + name)
		if err := runtime.Images().RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: name}); err != nil {
			t.Fatal(err)
		}
		run(t, m, collectPeriod+time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.used) > 0 {
			t.Errorf("uses of images that are gone are kept: %v", m.used)
		}
	})
}

// Images that are not in use do not become more and more, however small they are.
func TestImagesInExcessAreRemoved(t *testing.T) {
	for threshold, left := range map[int32]int{85: mostNames / 3, 100: mostNames/3 + 10} {
		synctest.Test(t, func(t *testing.T) {
			runtime := inmemorytest.New()
			for i := range mostNames/3 + 10 { // each has an id, a tag and a digest
				runtime.AddImage(fmt.Sprintf("example.com/small:%d", i), 1)
			}
			runtime.AddImage("example.com/used:1", 1)
			startContainer(t, runtime, "example.com/used:1")
			m := newManager(runtime, node.FileSystem{Bytes: 90 << 30, Total: 100 << 30})
			*m.config.Configuration.ImageGCHighThresholdPercent = threshold
			run(t, m, collectPeriod+time.Second)
			got := imageNames(t, runtime)
			if len(got) != left+1 || !slices.Contains(got, "example.com/used:1") {
				t.Errorf("with a threshold of %d percent, %d images are left, want the used one and %d others", threshold, len(got), left)
			}
		})
	}
}

// Those that were used least recently are removed first.
func TestImagesInExcess(t *testing.T) {
	one := &runtimeapi.Image{Id: "one"}
	three := &runtimeapi.Image{Id: "three", RepoTags: []string{"a", "b"}}
	five := &runtimeapi.Image{Id: "five", RepoTags: []string{"c", "d"}, RepoDigests: []string{"e", "f"}}
	images := []*runtimeapi.Image{one, three, five}
	for most, want := range map[int]int{9: 0, 8: 1, 7: 2, 5: 2, 4: 3} {
		if got := len(inExcess(images, most)); got != want {
			t.Errorf("of nine names at most %d: %d images are removed, want %d", most, got, want)
		}
	}
}
