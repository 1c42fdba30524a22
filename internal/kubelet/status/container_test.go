package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
)

// A container whose start or hook failed waits only if it is started again.
func TestWaitingAfterAFailure(t *testing.T) {
	for _, test := range []struct {
		name    string
		policy  v1.RestartPolicy
		code    int32
		deleted bool
		waits   bool
	}{
		{"always", v1.RestartPolicyAlways, 137, false, true},
		{"on failure", v1.RestartPolicyOnFailure, 137, false, true},
		{"on failure, completed", v1.RestartPolicyOnFailure, 0, false, false},
		{"never", v1.RestartPolicyNever, 137, false, false},
		{"deleted", v1.RestartPolicyAlways, 137, true, false},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: test.policy, Containers: []v1.Container{{Name: "main"}, {Name: "other"}}}}
		if test.deleted {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
		}
		st := Generate(Input{
			Pod: p, Now: time.Unix(1_800_000_000, 0), Waiting: map[string]Cause{"main": {Reason: "PostStartHookError"}},
			Observed: &cri.Pod{Containers: []*cri.Container{
				{ID: "1", Name: "main", State: cri.Exited, ExitCode: test.code}, {ID: "2", Name: "other", State: cri.Running},
			}},
		}).ContainerStatuses[0]
		if waits := st.State.Waiting != nil; waits != test.waits || waits == (st.State.Terminated != nil) {
			t.Errorf("%s: %+v, want waiting %t", test.name, st.State, test.waits)
		}
	}
}
