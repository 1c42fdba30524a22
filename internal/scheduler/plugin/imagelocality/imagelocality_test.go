package imagelocality

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/plugintest"
)

const mebibyte = 1 << 20

func nodeWith(name string, images ...v1.ContainerImage) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Images: images}}
}

func image(mebibytes int64, names ...string) v1.ContainerImage {
	return v1.ContainerImage{Names: names, SizeBytes: mebibytes * mebibyte}
}

// TestImageLocality scores the node a of two nodes. An image counts with its size,
// times the share of the nodes that hold it, between 23 MiB and 1000 MiB for each
// image.
func TestImageLocality(t *testing.T) {
	for _, test := range []struct {
		name   string
		a, b   []v1.ContainerImage
		images []string // of the pod's containers; "volume NAME" is of an image volume
		want   int64
	}{
		{"an image volume", []v1.ContainerImage{image(9000, "model:1")}, nil, []string{"web:1", "volume model:1"}, 100},
		{"an image volume without its image", []v1.ContainerImage{image(1000, "web:1")}, []v1.ContainerImage{image(1000, "web:1")}, []string{"web:1", "volume model:1"}, 49},
		{"an image on all nodes", []v1.ContainerImage{image(511, "web:1")}, []v1.ContainerImage{image(511, "web:1")}, []string{"web:1"}, 49},
		{"an image on half of them", []v1.ContainerImage{image(1022, "web:1")}, nil, []string{"web:1"}, 49},
		{"an image on the other node", nil, []v1.ContainerImage{image(1022, "web:1")}, []string{"web:1"}, 0},
		{"a small image", []v1.ContainerImage{image(20, "web:1")}, []v1.ContainerImage{image(20, "web:1")}, []string{"web:1"}, 0},
		{"a huge image", []v1.ContainerImage{image(9000, "web:1")}, nil, []string{"web:1"}, 100},
		{"two containers", []v1.ContainerImage{image(1000, "web:1"), image(1000, "db:1")}, []v1.ContainerImage{image(1000, "web:1"), image(1000, "db:1")}, []string{"web:1", "db:1"}, 100},
		{"one image of two", []v1.ContainerImage{image(1000, "web:1")}, []v1.ContainerImage{image(1000, "web:1")}, []string{"web:1", "db:1"}, 49},
		{"a name without a tag", []v1.ContainerImage{image(9000, "registry:5000/web:latest")}, nil, []string{"registry:5000/web"}, 100},
		{"another tag", []v1.ContainerImage{image(9000, "web:1")}, nil, []string{"web:2"}, 0},
		{"one of several names", []v1.ContainerImage{image(9000, "web:1", "web@sha256:0")}, nil, []string{"web@sha256:0"}, 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			made, h := plugintest.New(t, Factory(), nil)
			p, pod := made.(*plugin), &v1.Pod{}
			for _, image := range test.images {
				if reference, ok := strings.CutPrefix(image, "volume "); ok {
					pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: reference}}})
					continue
				}
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Image: image})
			}
			snapshot := plugintest.Snapshot([]*v1.Node{nodeWith("a", test.a...), nodeWith("b", test.b...)})
			state, info := framework.NewCycleState(h), framework.NewPodInfo(pod)
			if s := p.PreScore(t.Context(), state, info, snapshot, snapshot.Nodes()); !s.IsSuccess() {
				t.Fatal(s.Code())
			}
			if got, _ := p.Score(t.Context(), state, info, snapshot.Node("a")); got != test.want {
				t.Errorf("score %d, want %d", got, test.want)
			}
		})
	}
}

func TestNodesWithoutImages(t *testing.T) {
	made, h := plugintest.New(t, Factory(), nil)
	snapshot := plugintest.Snapshot([]*v1.Node{nodeWith("a")})
	s := made.(*plugin).PreScore(t.Context(), framework.NewCycleState(h), framework.NewPodInfo(&v1.Pod{}), snapshot, snapshot.Nodes())
	if !s.IsSkip() {
		t.Errorf("%s, want Skip", s.Code())
	}
}
