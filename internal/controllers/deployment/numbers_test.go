package deployment

import (
	"fmt"
	"math"
	"testing"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Numbers of replicas in annotations that a user has changed do not count if they make no sense.
func TestNumberAnnotation(t *testing.T) {
	for value, want := range map[string]string{
		"": "0 false", "many": "0 false", "-1": "0 false", "0": "0 true", "13": "13 true", "2147483647": "2147483647 true", "2147483648": "0 false", "4294967296": "0 false",
	} {
		n, ok := numberAnnotation(&apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"x": value}}}, "x")
		if got := fmt.Sprint(n, ok); ok && got != want || !ok && want != "0 false" {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
