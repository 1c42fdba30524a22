package nodepreferavoidpods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func TestNodePreferAvoidPods(t *testing.T) {
	avoids := `{"preferAvoidPods":[{"podSignature":{"podController":{"kind":"ReplicaSet","uid":"1"}}}]}`
	for _, test := range []struct {
		name, kind, uid, annotation string
		want                        int64
	}{
		{"the controller is avoided", "ReplicaSet", "1", avoids, 0},
		{"another controller", "ReplicaSet", "2", avoids, 100},
		{"the same UID of another kind", "ReplicationController", "1", avoids, 100},
		{"no annotation", "ReplicaSet", "1", "", 100},
		{"an annotation that is no JSON", "ReplicaSet", "1", "{", 100},
		{"no controller", "", "", avoids, 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod, node := &v1.Pod{}, &v1.Node{}
			if test.kind != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: test.kind, UID: types.UID(test.uid), Controller: new(true)}}
			}
			node.Annotations = map[string]string{v1.PreferAvoidPodsAnnotationKey: test.annotation}
			n := framework.NewNodeInfo("node")
			n.SetNode(node)
			if got, _ := (plugin{}).Score(t.Context(), nil, framework.NewPodInfo(pod), n); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}
