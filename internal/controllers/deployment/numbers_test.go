package deployment

import (
	"math"
	"testing"

	apps "k8s.io/api/apps/v1"
)

// Calculations with the largest numbers of replicas do not overflow.
func TestLargestNumberOfReplicas(t *testing.T) {
	for _, surge := range []string{"25%", "2147483647", "9999999%"} {
		d := deploymentOf(math.MaxInt32, surge, "100%")
		if got := newReplicas(d, setsOf("0/0")); got != math.MaxInt32 {
			t.Errorf("with a surge of %s the new ReplicaSet gets %d pods, want %d", surge, got, math.MaxInt32)
		}
		s := setsOf("2147483647/0", "2147483647/0")
		if got := total(s.all(), replicas); got != math.MaxInt32 {
			t.Errorf("two of the largest are %d pods in all, want %d", got, math.MaxInt32)
		}
		s.oldRSs[0].Annotations = map[string]string{maxAnnotation: "1"}
		for _, scaled := range proportional(d, []*apps.ReplicaSet{s.newRS, s.oldRSs[0]}) {
			if scaled.to < 0 {
				t.Errorf("with a surge of %s ReplicaSet %s is scaled to %d pods", surge, scaled.rs.Name, scaled.to)
			}
		}
	}
}
