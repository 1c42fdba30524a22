package source

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/status"
)

// The node does not keep the specifications of the pods that it has rejected, of which a
// user can make any number. It keeps the containers of others, also of pods that failed.
func TestRejectedPodsAreReduced(t *testing.T) {
	const large = 100_000
	pod := func(change func(s *v1.PodStatus)) *v1.Pod {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web", UID: "uid", ResourceVersion: "7", Generation: 2, DeletionTimestamp: new(metav1.Unix(1, 0)), DeletionGracePeriodSeconds: new(int64(5)),
				Annotations: map[string]string{"large": strings.Repeat("x", large)},
			},
			Spec: v1.PodSpec{NodeName: "here", Containers: []v1.Container{{Name: "main", Args: []string{strings.Repeat("x", large)}}}},
		}
		change(&p.Status)
		return p
	}
	rejected := func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message, s.StartTime = v1.PodFailed, "NodeAffinity", status.RejectedPrefix+"no such label", new(metav1.Unix(1, 0))
	}
	for name, test := range map[string]struct {
		change     func(s *v1.PodStatus)
		containers bool // are kept
	}{
		"new":      {func(*v1.PodStatus) {}, true},
		"failed":   {func(s *v1.PodStatus) { s.Phase, s.Message = v1.PodFailed, "evicted" }, true},
		"rejected": {rejected, false},
		"rejected after it ran": {func(s *v1.PodStatus) {
			rejected(s)
			s.ContainerStatuses = []v1.ContainerStatus{{Name: "main"}}
		}, true},
	} {
		before := pod(test.change)
		obj, err := newReducer().reduce(before)
		if err != nil {
			t.Fatal(err)
		}
		after := obj.(*v1.Pod)
		if test.containers {
			if len(after.Spec.Containers) != 1 || after.Spec.Containers[0].Name != "main" {
				t.Errorf("%s: the pod became %v", name, after)
			}
			continue
		}
		if n := after.Size(); n > 1000 || !status.WasRejected(after) {
			t.Errorf("%s: the node keeps %d bytes: %v", name, n, after)
		}
		if after.UID != "uid" || after.Generation != 2 || after.Spec.NodeName != "here" || after.DeletionTimestamp == nil || *after.DeletionGracePeriodSeconds != 5 {
			t.Errorf("%s: the node knows the pod as %+v", name, after.ObjectMeta)
		}
	}
}
