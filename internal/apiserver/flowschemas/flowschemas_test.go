package flowschemas

import (
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDangling(t *testing.T) {
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	s := &flowcontrolv1.FlowSchema{}
	s.Spec.PriorityLevelConfiguration.Name = "p"
	for _, step := range []struct {
		found   bool
		now     time.Time
		status  flowcontrolv1.ConditionStatus // "" where nothing is to be written
		reason  string
		changed time.Time
	}{
		{true, first, flowcontrolv1.ConditionFalse, "Found", first},
		{true, second, "", "", first},
		{false, second, flowcontrolv1.ConditionTrue, "NotFound", second},
	} {
		c := dangling(s, step.found, step.now)
		if c == nil {
			if step.status != "" {
				t.Errorf("nothing to write, want %s", step.status)
			}
			continue
		}
		if c.Status != step.status || c.Reason != step.reason || c.LastTransitionTime != metav1.NewTime(step.changed) {
			t.Errorf("%+v, want %s, %s since %v", c, step.status, step.reason, step.changed)
		}
		s.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{*c}
	}
}
