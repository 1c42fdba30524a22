package batch

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
)

// TestTemplateUpdate checks that the mutable fields of a template depend on
// whether the job has pods.
func TestTemplateUpdate(t *testing.T) {
	const (
		fresh     = `{spec: {suspend: true}}`
		suspended = `{spec: {suspend: true}, status: {startTime: "2026-01-01T00:00:00Z", conditions: [{type: Suspended, status: "True"}]}}`
		stopping  = `{spec: {suspend: true}, status: {startTime: "2026-01-01T00:00:00Z"}}`
		active    = `{spec: {suspend: true}, status: {active: 1}}`
		ending    = `{spec: {suspend: true}, status: {startTime: "2026-01-01T00:00:00Z", active: 1, conditions: [{type: Suspended, status: "True"}]}}`
		resuming  = `{spec: {suspend: false}, status: {conditions: [{type: Suspended, status: "True"}]}}`
		running   = `{spec: {suspend: false}}`

		affinity   = `{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}`
		neighbours = `{podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}`
		resources  = `{containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}], initContainers: [{name: d, image: i, resources: {limits: {cpu: 1}}}]}`
		none       = "MutableSchedulingDirectivesForSuspendedJobs=false MutablePodResourcesForSuspendedJobs=false"
	)
	for _, test := range []struct {
		name, job, before, after, features, want string
	}{
		{name: "nothing", job: running},
		{name: "scheduling of a new job", job: fresh, after: `{nodeSelector: {a: b}, affinity: ` + affinity + `}`},
		{name: "scheduling of a suspended job", job: suspended, after: `{tolerations: [{operator: Exists}]}`},
		{name: "scheduling of a suspended job, without the gate", job: suspended, features: none, after: `{nodeSelector: {a: b}}`, want: "spec.template"},
		{name: "scheduling of a new job, without the gate", job: fresh, features: none, after: `{nodeSelector: {a: b}}`},
		{name: "scheduling of a job that stops", job: stopping, after: `{nodeSelector: {a: b}}`, want: "spec.template"},
		{name: "scheduling of a running job", job: running, after: `{nodeSelector: {a: b}}`, want: "spec.template"},
		{name: "scheduling of a suspended job with pods", job: ending, after: `{nodeSelector: {a: b}}`, want: "spec.template"},
		{name: "scheduling of a job that resumes", job: resuming, after: `{nodeSelector: {a: b}}`, want: "spec.template"},
		{name: "scheduling of a job with pods, without the gate", job: ending, features: none, after: `{nodeSelector: {a: b}}`, want: "spec.template"},
		{name: "no node affinity any more", job: fresh, before: `{affinity: ` + affinity + `}`},
		{name: "neighbours", job: fresh, after: `{affinity: ` + neighbours + `}`, want: "spec.template.spec"},
		{name: "no neighbours any more", job: fresh, before: `{affinity: ` + neighbours + `}`, want: "spec.template.spec"},
		{name: "resources of a new job", job: fresh, after: resources},
		{name: "resources of a suspended job", job: suspended, after: resources},
		{name: "resources of a job with pods", job: active, after: resources, want: "spec.template"},
		{name: "resources of a suspended job with pods", job: ending, after: resources, want: "spec.template"},
		{name: "resources of a job that resumes", job: resuming, after: resources, want: "spec.template"},
		{name: "resources of a running job", job: running, after: resources, want: "spec.template"},
		{name: "resources without the gate", job: fresh, features: none, after: resources, want: "spec.template"},
		{name: "resources of another container", job: fresh, after: `{containers: [{name: x, image: i, resources: {requests: {cpu: 1}}}]}`, want: "spec.template.spec"},
		{name: "an image", job: fresh, after: `{containers: [{name: c, image: j}]}`, want: "spec.template.spec"},
	} {
		t.Run(test.name, func(t *testing.T) {
			features, err := feature.Parse(strings.Fields(test.features))
			if err != nil {
				t.Fatal(err)
			}
			job := func(spec string) *batchv1.Job {
				j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}}
				for _, part := range []string{test.job, `{spec: {template: {spec: {initContainers: [{name: d, image: i}], containers: [{name: c, image: i}]}}}}`} {
					if err := yaml.Unmarshal([]byte(part), j); err != nil {
						t.Fatal(err)
					}
				}
				if err := yaml.Unmarshal([]byte(spec), &j.Spec.Template.Spec); err != nil {
					t.Fatal(err)
				}
				return j
			}
			got := ""
			for _, err := range validateTemplateUpdate(features, field.NewPath("spec", "template"), job(test.after), job(test.before)) {
				got += err.Field
			}
			if got != test.want {
				t.Errorf("refused %q, want %q", got, test.want)
			}
		})
	}
}
