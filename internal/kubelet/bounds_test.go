package kubelet

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A container whose variables multiply waits with a message that names the
// variable, and the pod's other containers run.
func TestEnvironmentThatMultiplies(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", func(p *v1.Pod) {
			other := p.Spec.Containers[0]
			other.Name = "other"
			p.Spec.Containers = append(p.Spec.Containers, other)
			c := &p.Spec.Containers[0]
			c.Env = []v1.EnvVar{{Name: "V0", Value: "0123456789"}}
			for i := range 6 {
				c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("V", i+1), Value: strings.Repeat(fmt.Sprintf("$(V%d)", i), 10)})
			}
		}))
		for _, st := range b.get("web").Status.ContainerStatuses {
			waiting := st.State.Waiting
			switch {
			case st.Name == "other" && st.State.Running == nil:
				t.Errorf("the other container is %+v", st.State)
			case st.Name == "main" && (waiting == nil || waiting.Reason != "CreateContainerConfigError" || !strings.HasPrefix(waiting.Message, "environment variable V5 takes more than")):
				t.Errorf("the container is %+v (%+v)", st.State, waiting)
			}
		}
	})
}
