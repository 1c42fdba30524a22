package pod_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestRestartRules checks that restart rules need a policy, and that restarts
// of all containers and rules of sidecars need a feature gate (KEP-5532).
func TestRestartRules(t *testing.T) {
	const all = `restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}]`
	for _, c := range []struct{ gates, spec, want string }{
		{"", `{containers: [{name: c, image: i, restartPolicy: Never, ` + all + `}]}`, ""},
		{"", `{initContainers: [{name: s, image: i, restartPolicy: Always, ` + all + `}]}`, ""},
		{
			"", `{initContainers: [{name: s, image: i, ` + all + `}]}`,
			"spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
		},
		{
			"RestartAllContainersOnContainerExits=false", `{containers: [{name: c, image: i, restartPolicy: Never, ` + all + `}]}`,
			`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart"`,
		},
		{
			"RestartAllContainersOnContainerExits=false",
			`{initContainers: [{name: s, image: i, restartPolicy: Always, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [3]}}]}]}`,
			"spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always",
		},
	} {
		features, err := feature.Parse(strings.Split(c.gates, ","))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		errs := resourcetest.BeforeCreate(pod.Pods(), &resource.RequestContext{Now: noon, Namespace: "default", Features: features}, newPod(t, c.spec))
		if err := errs.ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.gates, c.spec, got, c.want)
		}
	}
}

// noon is the time of the tests.
var noon = time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)
