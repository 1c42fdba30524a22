package volume

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// kernel is a mount table that may not know noswap.
type kernel struct {
	files.Memory
	old     bool
	options [][]string
}

func (k *kernel) Mount(source, target, fstype string, options []string) error {
	if k.old && slices.Contains(options, "noswap") {
		return fmt.Errorf("mount %s: %w", target, syscall.EINVAL)
	}
	k.options = append(k.options, options)
	return k.Memory.Mount(source, target, fstype, options)
}

func TestSecretsAreNotSwapped(t *testing.T) {
	for _, old := range []bool{false, true} {
		k := &kernel{old: old}
		v := &Manager{Root: "/k", FS: k, Mounter: k, Objects: objects{}, Tokens: tokens{}}
		pod := podWith(nil,
			v1.Volume{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
			v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		)
		if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err != nil {
			t.Fatal(err)
		}
		if len(k.options) != 2 {
			t.Fatalf("%d mounts", len(k.options))
		}
		for _, options := range k.options {
			if slices.Contains(options, "noswap") == old {
				t.Errorf("an old kernel: %v, options %v", old, options)
			}
		}
	}
}
