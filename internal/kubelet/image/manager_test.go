package image

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
)

const imageFS, layersFS = "/var/lib/runtime/images", "/var/lib/runtime/layers"

// newManager returns a Manager of a machine whose disk is half full and whose
// image file system is as given. Images are removed two minutes after their
// last use.
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
		Active:  func() []*v1.Pod { return nil }, Recorder: record.NewFakeRecorder(100),
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

// startContainer runs a container of an image and returns its id.
func startContainer(t *testing.T, runtime *inmemorytest.Runtime, image string) string {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "uid"}}
	sandbox, err := runtime.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := runtime.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: image},
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
// pulled.
func TestImagesInUseAreTouchedEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "example.com/used:1"
		runtime := inmemorytest.New()
		runtime.AddImage(name, 1<<30)
		m := newManager(runtime, node.FileSystem{Bytes: 90 << 30, Total: 100 << 30})
		m.touch("sha256:" + name) // as Ensure does
		id := startContainer(t, runtime, name)
		run(t, m, 10*collectPeriod+time.Second)
		if err := runtime.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if freed := m.Free(t.Context(), 1); freed > 0 {
			t.Error("an image was removed a second after its last use")
		}
		time.Sleep(2 * time.Minute)
		if freed := m.Free(t.Context(), 1); freed != 1<<30 {
			t.Errorf("freed %d bytes two minutes after the last use", freed)
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
