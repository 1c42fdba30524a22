package kubelet

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// The paths of file systems that have the images and the writable layers alone.
const imagesPath, layersPath = "/images", "/layers"

func (c *changing) FileSystem(path string) (node.FileSystem, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch path {
	case imagesPath:
		return c.left.Images, nil
	case layersPath:
		return c.left.Containers, nil
	}
	return c.Machine.FileSystem(path)
}

// Where images have a file system of their own, with or without the writable layers, only
// what is on the one that is short is removed.
func TestDisksOfImages(t *testing.T) {
	const disk, images = 1, 2 // devices
	for name, test := range map[string]struct {
		layers     uint64 // where the writable layers are
		short      uint64
		image, pod bool // are left of what no pod needs
	}{
		"images and layers apart, the disk is short":  {images, disk, true, false},
		"images and layers apart, the images are":     {images, images, false, false},
		"images apart, the disk with layers is short": {disk, disk, true, false},
		"images apart, and short":                     {disk, images, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := func(short uint64) (f node.Free) {
					on := func(device uint64) node.FileSystem {
						if device == short {
							return node.FileSystem{Bytes: 1, Total: 100, Device: device}
						}
						return node.FileSystem{Bytes: 50, Total: 100, Device: device}
					}
					f.DiskBytes, f.DiskTotal, f.DiskDevice = on(disk).Bytes, 100, disk
					f.Images, f.Containers = on(images), on(test.layers)
					return f
				}
				machine := &changing{left: left(0)}
				b := newBench(t)
				b.configure = func(c *Config) {
					machine.Machine, c.Machine = c.Machine, machine
					c.Configuration.EvictionHard = map[string]string{"nodefs.available": "10%", "imagefs.available": "10%"}
				}
				b.runtime.Behave = ends
				b.runtime.Images().SetRoot(imagesPath)
				b.runtime.Images().SetLayersRoot(layersPath)
				b.runtime.AddImage("example.com/old:1", 10)
				b.start()
				defer func() { b.stop() }()
				b.create(pod("job", func(p *v1.Pod) {
					p.Spec.RestartPolicy, p.Spec.Containers[0].Name = v1.RestartPolicyNever, "job"
				}))
				b.createWriting("modest", 10)
				b.after(4 * time.Minute)
				machine.set(left(test.short))
				b.after(10 * time.Second)
				found, err := b.runtime.Images().ListImages(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, i := range found {
					names = append(names, i.GetRepoTags()...)
				}
				if image, pod := slices.Contains(names, "example.com/old:1"), len(b.leftOf("job")) > 0; image != test.image || pod != test.pod {
					t.Errorf("images %q are left, and of the pod that has ended %q", names, b.leftOf("job"))
				}
				machine.set(left(0))
				b.after(time.Minute)
				if got := b.nodeCondition(v1.NodeDiskPressure); got != "True KubeletHasDiskPressure" {
					t.Errorf("the node's condition is %s", got)
				}
				if evicted := b.evictedOf("modest"); evicted != nil {
					t.Errorf("evicted are %q, although something else was removed", evicted)
				}
			})
		})
	}
}

// A pod is evicted if what no pod needs frees enough for the threshold, and not for the
// minimum that is to be reclaimed.
func TestMinimumOfADiskIsReclaimed(t *testing.T) {
	for freed, want := range map[int64][]string{12: {"greedy"}, 15: nil} {
		synctest.Test(t, func(t *testing.T) {
			machine := &changing{left: node.Free{DiskBytes: 50, DiskTotal: 100}}
			b := newBench(t)
			b.configure = func(c *Config) {
				machine.Machine, c.Machine = c.Machine, machine
				c.Configuration.EvictionHard = map[string]string{"nodefs.available": "10%"}
				c.Configuration.EvictionMinimumReclaim = map[string]string{"nodefs.available": "5%"}
			}
			b.runtime.AddImage("example.com/old:1", 10)
			b.start()
			defer func() { b.stop() }()
			b.createWriting("greedy", 1000)
			b.createWriting("modest", 10)
			b.after(4 * time.Minute)
			machine.set(node.Free{DiskBytes: 9, DiskTotal: 100})
			b.after(10 * time.Second)
			if evicted := b.evictedOf("greedy", "modest"); evicted != nil {
				t.Errorf("evicted are %q, although an image was removed", evicted)
			}
			machine.set(node.Free{DiskBytes: freed, DiskTotal: 100})
			b.after(10 * time.Second)
			if evicted := b.evictedOf("greedy", "modest"); !slices.Equal(evicted, want) {
				t.Errorf("with %d %% free, evicted are %q, want %q", freed, evicted, want)
			}
		})
	}
}
