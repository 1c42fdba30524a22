package prioritysort

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

func TestLess(t *testing.T) {
	of := func(priority int32, second int64) framework.QueuedPod {
		return framework.QueuedPod{PodInfo: framework.NewPodInfo(&v1.Pod{Spec: v1.PodSpec{Priority: &priority}}), Timestamp: time.Unix(second, 0)}
	}
	for _, test := range []struct {
		name string
		a, b framework.QueuedPod
		want bool
	}{
		{"a higher priority is first", of(2, 9), of(1, 1), true},
		{"a lower one is not", of(1, 1), of(2, 9), false},
		{"of equals the older is first", of(1, 1), of(1, 2), true},
		{"the newer is not", of(1, 2), of(1, 1), false},
		{"neither of two alike is", of(1, 1), of(1, 1), false},
	} {
		if got := (Plugin{}).Less(test.a, test.b); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}
