package autoscaling_test

import (
	"testing"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/autoscaling"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestAnswers replays what upstream answered about this group's kinds.
// Autoscalers had no generation then.
func TestAnswers(t *testing.T) {
	features, err := feature.Parse([]string{"HPAGeneration=false"})
	if err != nil {
		t.Fatal(err)
	}
	resourcetest.Replay(t, autoscaling.Resources(), "testdata/differences.txt", func(r *resource.RequestContext, _, _ resource.Object) error {
		r.Features = features
		return nil
	})
}
