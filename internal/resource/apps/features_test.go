package apps

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
)

// TestFieldsOfFeatures checks that fields of disabled features are not stored
// unless the stored object has them.
func TestFieldsOfFeatures(t *testing.T) {
	set := &appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(2))},
	}}
	deployment := &appsv1.DeploymentStatus{TerminatingReplicas: ptr.To[int32](1)}
	replicas := &appsv1.ReplicaSetStatus{TerminatingReplicas: ptr.To[int32](1)}
	for _, c := range []struct {
		gates string
		old   bool
		kept  bool
	}{
		{"WatchList=true", false, true},
		{"MaxUnavailableStatefulSet=false,DeploymentReplicaSetTerminatingReplicas=false", false, false},
		{"MaxUnavailableStatefulSet=false,DeploymentReplicaSetTerminatingReplicas=false", true, true},
	} {
		features := parse(t, c.gates)
		set, deployment, replicas := set.DeepCopy(), deployment.DeepCopy(), replicas.DeepCopy()
		oldSet, oldDeployment, oldReplicas := &appsv1.StatefulSetSpec{}, &appsv1.DeploymentStatus{}, &appsv1.ReplicaSetStatus{}
		if c.old {
			oldSet, oldDeployment, oldReplicas = set.DeepCopy(), deployment.DeepCopy(), replicas.DeepCopy()
		}
		feature.Drop(features, statefulSetFields(), set, oldSet)
		feature.Drop(features, deploymentStatusFields(), deployment, oldDeployment)
		feature.Drop(features, replicaSetStatusFields(), replicas, oldReplicas)
		for name, kept := range map[string]bool{
			"maxUnavailable":                     set.UpdateStrategy.RollingUpdate.MaxUnavailable != nil,
			"terminatingReplicas of deployments": deployment.TerminatingReplicas != nil,
			"terminatingReplicas of replicasets": replicas.TerminatingReplicas != nil,
		} {
			if kept != c.kept {
				t.Errorf("%s, used before %t: %s is kept: %t", c.gates, c.old, name, kept)
			}
		}
	}
}

func parse(t *testing.T, gates string) *feature.Set {
	t.Helper()
	features, err := feature.Parse(strings.Split(gates, ","))
	if err != nil {
		t.Fatal(err)
	}
	return features
}
