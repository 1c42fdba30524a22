package volume

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// The size of a pod's volumes in memory is bounded by the pod's memory limit and
// the node's allocatable memory, and of those with contents by what a pod may
// show, in two versions.
func TestSizeOfVolumesInMemory(t *testing.T) {
	small := resource.MustParse("1Mi")
	memory := func(bytes string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(bytes)}
	}
	for name, test := range map[string]struct {
		limits, allocatable v1.ResourceList
		secret, work        string // options of the mounts
	}{
		"limit of the pod":   {memory("16Mi"), memory("1Gi"), "size=16777216", "size=1048576"},
		"limit of the node":  {nil, memory("1Gi"), "size=134217728", "size=1048576"},
		"less than they ask": {memory("4Ki"), memory("1Gi"), "size=4096", "size=4096"},
		"nothing is known":   {nil, nil, "size=134217728", "size=1048576"},
	} {
		k := &kernel{}
		v := &Manager{Root: "/k", FS: k, Mounter: k, Objects: objects{}, Tokens: tokens{}}
		pod := podWith(nil,
			v1.Volume{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
			v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &small}}},
		)
		pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Limits: test.limits}}}
		if _, _, err := v.SetUp(t.Context(), pod, Facts{Allocatable: test.allocatable}); err != nil {
			t.Fatal(err)
		}
		if len(k.options) != 2 {
			t.Fatalf("%s: %d mounts", name, len(k.options))
		}
		for i, want := range []string{test.secret, test.work} {
			if !slices.Contains(k.options[i], want) {
				t.Errorf("%s: mount %d has options %v, want %s", name, i, k.options[i], want)
			}
		}
	}
}

// mountTable is a machine that counts how often all of its mounts are listed.
type mountTable struct {
	files.Memory
	reads int
}

func (m *mountTable) Below(path string) ([]string, error) {
	m.reads++
	return m.Memory.Below(path)
}

// The volumes of a pod that are mounts of their own are not looked for among all mounts of
// the node, of which there may be 100,000, each time that the pod is synced.
func TestMountsAreNotListedForEachVolume(t *testing.T) {
	k := &mountTable{}
	v := &Manager{Root: "/k", FS: k, Mounter: k, Objects: objects{}, Tokens: tokens{}}
	var volumes []v1.Volume
	for i := range 100 {
		volumes = append(volumes,
			v1.Volume{Name: fmt.Sprint("work", i), VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
			v1.Volume{Name: fmt.Sprint("secret", i), VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		)
	}
	pod := podWith(nil, volumes...)
	for range 3 {
		if _, _, err := v.SetUp(t.Context(), pod, Facts{}); err != nil {
			t.Fatal(err)
		}
	}
	if k.reads != 0 {
		t.Errorf("all mounts are listed %d times", k.reads)
	}
}
