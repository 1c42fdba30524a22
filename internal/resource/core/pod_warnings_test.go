package core_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

func TestPodWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"nothing odd": {},
		"old node label": {
			spec: "{nodeSelector: {beta.kubernetes.io/os: linux}}",
			want: []string{`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		},
		"a name twice in the environment": {
			spec: `{containers: [{name: c, image: i, env: [{name: A, value: "1"}, {name: A, value: "2"}]}]}`,
			want: []string{`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`},
		},
		"half a byte": {
			spec: "{containers: [{name: c, image: i, resources: {limits: {memory: 500m}, requests: {memory: 1}}}]}",
			want: []string{`spec.containers[0].resources.limits[memory]: fractional byte value "500m" is invalid, must be an integer`},
		},
		"selects nothing": {
			spec: "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}",
			want: []string{"spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"},
		},
		"a volume of the past": {
			spec: "{volumes: [{name: v, gitRepo: {repository: r}}]}",
			want: []string{"spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"},
		},
	} {
		got := core.Pods().Warnings(&resource.Request{}, newPod(t, test.spec), nil)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
