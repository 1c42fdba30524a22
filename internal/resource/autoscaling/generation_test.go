package autoscaling

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// TestGeneration checks that changes of the spec increment the generation.
func TestGeneration(t *testing.T) {
	off, err := feature.Parse([]string{"HPAGeneration=false"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		features                  *feature.Set
		created, labelled, scaled int64
	}{
		{nil, 1, 1, 2},
		{off, 0, 0, 0},
	} {
		strategy, request := HorizontalPodAutoscalers().Strategy, &resource.RequestContext{Features: test.features}
		created := &autoscalingv2.HorizontalPodAutoscaler{}
		strategy.PrepareForCreate(request, created)
		labelled := created.DeepCopy()
		labelled.Labels = map[string]string{"a": "b"}
		strategy.PrepareForUpdate(request, labelled, created)
		scaled := created.DeepCopy()
		scaled.Spec.MaxReplicas = 3
		strategy.PrepareForUpdate(request, scaled, created)
		if created.Generation != test.created || labelled.Generation != test.labelled || scaled.Generation != test.scaled {
			t.Errorf("generations %d, %d, %d, want %d, %d, %d", created.Generation, labelled.Generation, scaled.Generation, test.created, test.labelled, test.scaled)
		}
	}
}
