package eviction

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// disks returns a machine with images and writable layers on devices. The kubelet's own
// files are on device 1. All are of one size.
func disks(images, layers uint64) node.Free {
	disk := node.FileSystem{Bytes: 50, Total: 100, Inodes: 5, InodesTotal: 10}
	free := node.Free{DiskBytes: 50, DiskTotal: 100, Inodes: 5, InodesTotal: 10, DiskDevice: 1, Images: disk, Containers: disk}
	free.Images.Device, free.Containers.Device = images, layers
	return free
}

func oneDisk() node.Free    { return disks(1, 1) }
func imageDisk() node.Free  { return disks(2, 2) } // with the layers
func splitDisk() node.Free  { return disks(2, 1) } // images alone
func layersDisk() node.Free { return disks(1, 2) } // layers alone
func threeDisks() node.Free { return disks(2, 3) }

// noPods are the pods of a node that has none.
type noPods struct{}

func (noPods) Evictable(int64, bool) []*v1.Pod    { return nil }
func (noPods) Has(types.UID) bool                 { return false }
func (noPods) Freed(types.UID) bool               { return true }
func (noPods) Evict(*v1.Pod, string, int64, bool) {}

// Ended containers are removed if their logs or layers are on the file system that is
// short, and images, and pulls in progress, if images are.
func TestWhatIsReclaimed(t *testing.T) {
	const all, containers, images = "containers images pulls", "containers", "images pulls"
	for _, test := range []struct {
		layout string
		free   node.Free
		want   map[string]string // by signal
	}{
		{"one disk", oneDisk(), map[string]string{nodeFsAvailable: all, nodeFsInodesFree: all, imageFsAvailable: all, imageFsInodesFree: all, containerFsAvailable: all}},
		{"images with layers", imageDisk(), map[string]string{nodeFsAvailable: containers, nodeFsInodesFree: containers, imageFsAvailable: all, imageFsInodesFree: all, containerFsAvailable: all}},
		{"images alone", splitDisk(), map[string]string{nodeFsAvailable: containers, nodeFsInodesFree: containers, imageFsAvailable: images, imageFsInodesFree: images, containerFsAvailable: containers}},
		{"layers alone", layersDisk(), map[string]string{nodeFsAvailable: all, imageFsAvailable: all, imageFsInodesFree: all, containerFsAvailable: containers}},
		{"three disks", threeDisks(), map[string]string{nodeFsAvailable: containers, imageFsAvailable: images, containerFsAvailable: containers, containerFsInodesFree: containers}},
		{"nothing is known", node.Free{DiskTotal: 100, DiskDevice: 1}, map[string]string{nodeFsAvailable: all, imageFsAvailable: all}},
		{"memory", oneDisk(), map[string]string{memoryAvailable: "", pidAvailable: ""}},
	} {
		for signal, want := range test.want {
			var did []string
			m := &Manager{config: Config{
				Configuration: &kubeletconfig.KubeletConfiguration{}, Recorder: record.NewFakeRecorder(10), Pods: noPods{}, Sources: Sources{Runtime: inmemory.New()},
				FreeContainers: func(context.Context) int { did = append(did, "containers"); return 0 },
				FreeImages:     func(context.Context, int64) int64 { did = append(did, "images"); return 0 },
				EndPulls:       func() int { did = append(did, "pulls"); return 0 },
			}}
			m.relieve(t.Context(), &Threshold{Signal: signal}, test.free)
			if got := strings.Join(did, " "); got != want {
				t.Errorf("%s, %s: reclaimed are %q, want %q", test.layout, signal, got, want)
			}
		}
	}
}

// A file system that has the writable layers alone has the thresholds of nodefs. What a
// configuration says of it is ignored, and checked.
func TestContainerFsThresholds(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{nodeFsAvailable: "10", nodeFsInodesFree: "1", imageFsAvailable: "20", containerFsAvailable: "90%"},
		EvictionSoft: map[string]string{nodeFsAvailable: "40", containerFsAvailable: "90%"}, EvictionSoftGracePeriod: map[string]string{nodeFsAvailable: "1m", containerFsAvailable: "1m"},
		EvictionMinimumReclaim: map[string]string{nodeFsAvailable: "5", containerFsInodesFree: "50"},
	}
	all, err := Thresholds(c)
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{thresholds: all, separate: withContainerFs(all)}
	for name, test := range map[string]struct {
		free node.Free
		want []string
	}{
		"one disk":           {oneDisk(), []string{nodeFsAvailable}},
		"images with layers": {imageDisk(), []string{nodeFsAvailable}},
		"images alone":       {splitDisk(), []string{nodeFsAvailable}},
		"layers alone":       {layersDisk(), []string{containerFsAvailable, nodeFsAvailable, containerFsAvailable}},
		"three disks":        {threeDisks(), []string{containerFsAvailable, nodeFsAvailable, containerFsAvailable}},
	} {
		test.free.DiskBytes, test.free.Containers.Bytes = 39, 9
		var got []string
		for _, met := range (&thresholdState{}).thresholdsMet(m.thresholdsFor(&test.free), test.free) {
			got = append(got, met.Signal)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: met are %q, want %q", name, got, test.want)
		}
	}
	if got, want := ignored(c), []string{"evictionHard containerfs.available", "evictionMinimumReclaim containerfs.inodesFree", "evictionSoft containerfs.available"}; !slices.Equal(got, want) {
		t.Errorf("ignored are %q, want %q", got, want)
	}
	c.EvictionHard[containerFsAvailable] = "much"
	if _, err := Thresholds(c); err == nil {
		t.Error("a threshold of containerfs that is no quantity was taken")
	}
	if condition(containerFsInodesFree) != string(v1.NodeDiskPressure) || resourceOf(containerFsInodesFree) != inodes || resourceOf(containerFsAvailable) != v1.ResourceEphemeralStorage {
		t.Error("containerfs is no disk")
	}
}

// When a disk is short, pods go by the excess over their requests of it. Of inodes, there
// are no requests: those of the disk do not count.
func TestRankOfDisks(t *testing.T) {
	const low, high, mib = -1, 1, 1 << 20
	newCandidate := func(name string, priority int32, request string, used int64) candidate {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{}}}}
		if request != "" {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(request)}
		}
		return candidate{Pod: p, Used: used}
	}
	for name, test := range map[v1.ResourceName]struct {
		candidates []candidate
		want       string
	}{
		v1.ResourceEphemeralStorage: {[]candidate{
			newCandidate("h", high, "1Gi", 200*mib), newCandidate("g", high, "1Gi", 800*mib), newCandidate("f", low, "1Gi", 200*mib), newCandidate("e", low, "1Gi", 800*mib),
			newCandidate("d", high, "100Mi", 150*mib), newCandidate("c", high, "100Mi", 600*mib), newCandidate("b", low, "", 50*mib), newCandidate("a", low, "", 500*mib),
		}, "abcdefgh"},
		inodes: {[]candidate{
			newCandidate("d", high, "", 150), newCandidate("c", high, "1Gi", 350), newCandidate("b", low, "", 100), newCandidate("a", low, "1Gi", 400),
		}, "abcd"},
		// The images alone are short: no pod uses anything there.
		"": {[]candidate{newCandidate("b", high, "", 0), newCandidate("a", low, "", 0)}, "ab"},
	} {
		got := ""
		for _, c := range rank(test.candidates, name) {
			got += c.Pod.Name
		}
		if got != test.want {
			t.Errorf("%s: order %s, want %s", name, got, test.want)
		}
	}
}
