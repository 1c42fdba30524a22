package core_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

func TestResourceQuotaWarnings(t *testing.T) {
	for hard, want := range map[string][]string{
		`{}`: nil,
		`{requests.cpu: 1, limits.cpu: 1, requests.storage: 2Gi, limits.memory: 1Gi, cpu: 3}`: nil,
		`{requests.cpu: 2, limits.cpu: 1, requests.memory: 3Gi, memory: 1Gi, limits.memory: 2Gi, requests.storage: 3Gi, limits.storage: 2Gi, requests.ephemeral-storage: 1, limits.ephemeral-storage: 0}`: {
			"ResourceQuota requests.cpu (2) should be less than limits.cpu (1)",
			"ResourceQuota requests.memory (3Gi) should be less than limits.memory (2Gi)",
			"ResourceQuota requests.storage (3Gi) should be less than limits.storage (2Gi)",
			"ResourceQuota requests.ephemeral-storage (1) should be less than limits.ephemeral-storage (0)",
		},
		`{cpu: 2, limits.cpu: 500m, storage: 2, limits.storage: 1}`: {"ResourceQuota cpu (2) should be less than limits.cpu (500m)"},
	} {
		q := &corev1.ResourceQuota{}
		if err := yaml.Unmarshal([]byte(hard), &q.Spec.Hard); err != nil {
			t.Fatal(err)
		}
		warnings := core.ResourceQuotas().Strategy.Warnings
		if diff := cmp.Diff(want, warnings(&resource.RequestContext{}, q, nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", hard, diff)
		}
		if got := warnings(&resource.RequestContext{}, q, q); got != nil {
			t.Errorf("%s, update: %q", hard, got)
		}
	}
}
