package podautoscaler

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// labelled returns n pods with one of several sets of labels each.
func labelled(n, sets int) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "index": fmt.Sprint(i % sets)}}}
	}
	return pods
}

func TestDistinctLabels(t *testing.T) {
	for _, sets := range []int{1, 7, 100} {
		if got := distinctLabels(labelled(100, sets)); len(got) != sets {
			t.Errorf("%d sets of labels, want %d", len(got), sets)
		}
	}
	if got := distinctLabels([]*v1.Pod{{}, {}}); len(got) != 1 {
		t.Errorf("%d sets of pods without labels, want 1", len(got))
	}
}

// BenchmarkDistinctLabels shows that each pod may have labels of its own.
func BenchmarkDistinctLabels(b *testing.B) {
	pods := labelled(5000, 5000)
	for b.Loop() {
		distinctLabels(pods)
	}
}
