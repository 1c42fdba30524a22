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
	whole := func(s *v1.PodSpec) { s.Resources = &v1.ResourceRequirements{Limits: memory("8Mi")} }
	unlimited := func(s *v1.PodSpec) { s.InitContainers = []v1.Container{{Name: "init"}} }
	for name, test := range map[string]struct {
		limits, allocatable v1.ResourceList
		change              func(s *v1.PodSpec)
		secret, work        string // options of the mounts
	}{
		"limit of the pod":      {memory("16Mi"), memory("1Gi"), nil, "size=16777216", "size=1048576"},
		"limit of the node":     {nil, memory("1Gi"), nil, "size=134217728", "size=1048576"},
		"less than they ask":    {memory("4Ki"), memory("1Gi"), nil, "size=4096", "size=4096"},
		"nothing is known":      {nil, nil, nil, "size=134217728", "size=1048576"},
		"limit of all together": {nil, memory("1Gi"), whole, "size=8388608", "size=1048576"},
		"no limit at the start": {memory("16Mi"), memory("1Gi"), unlimited, "size=134217728", "size=1048576"},
	} {
		k := &kernel{}
		v := &Manager{Root: "/k", FS: k, Mounter: k, Objects: objects{}, Tokens: tokens{}}
		pod := podWith(nil,
			v1.Volume{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
			v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &small}}},
		)
		pod.Spec.Containers[0].Resources.Limits = test.limits
		if test.change != nil {
			test.change(&pod.Spec)
		}
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

func TestPageSizes(t *testing.T) {
	requests := func(names ...v1.ResourceName) v1.ResourceRequirements {
		out := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
		for _, name := range names {
			out.Requests[name] = resource.MustParse("2Gi")
		}
		return out
	}
	const small, large = v1.ResourceName("hugepages-2Mi"), v1.ResourceName("hugepages-1Gi")
	for name, c := range map[string]struct {
		medium             v1.StorageMedium
		init, main, second v1.ResourceRequirements
		whole              *v1.ResourceRequirements
		want               string // "": an error
	}{
		"one":                         {medium: "HugePages", main: requests(small), want: "2Mi"},
		"the same of two containers":  {medium: "HugePages", main: requests(large), second: requests(large), want: "1Gi"},
		"the same by another name":    {medium: "HugePages", main: requests(large), second: requests("hugepages-1024Mi"), want: "1Gi"},
		"of an init container":        {medium: "HugePages", init: requests(large), want: "1Gi"},
		"of the whole pod":            {medium: "HugePages", whole: new(requests(small)), want: "2Mi"},
		"another of an init":          {medium: "HugePages", init: requests(small), main: requests(large)},
		"two of two containers":       {medium: "HugePages", main: requests(small), second: requests(large)},
		"two of one container":        {medium: "HugePages", main: requests(small, large)},
		"none":                        {medium: "HugePages"},
		"one of two":                  {medium: "HugePages-1Gi", main: requests(small, large), want: "1Gi"},
		"one of two of init":          {medium: "HugePages-2Mi", init: requests(small, large), main: requests(large), want: "2Mi"},
		"one of the whole pod":        {medium: "HugePages-2Mi", whole: new(requests(small, large)), want: "2Mi"},
		"one that nothing requests":   {medium: "HugePages-1Gi", main: requests(small)},
		"one, and nothing is needed":  {medium: "HugePages-1Gi"},
		"a size is missing":           {medium: "HugePages-", main: requests(small, large)},
		"a size that is none":         {medium: "HugePages-2MB", main: requests(small, large)},
		"a medium that nothing knows": {medium: "Tape", main: requests(small)},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Resources: c.init}}, Containers: []v1.Container{{Resources: c.main}, {Resources: c.second}}, Resources: c.whole,
		}}
		size, err := pageSize(pod, c.medium)
		if c.want == "" && err == nil || c.want != "" && (err != nil || size.Cmp(resource.MustParse(c.want)) != 0) {
			t.Errorf("%s: %s, %v; want %q", name, size.String(), err, c.want)
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
