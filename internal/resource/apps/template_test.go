package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
)

func TestRollingUpdate(t *testing.T) {
	for _, test := range []struct {
		unavailable, surge string
		deployment, daemon bool
	}{
		{"1", "0", true, true},
		{"0", "1", true, true},
		{"0", "0", false, false},
		{"0%", "0", false, false},
		{"1", "1", true, false},
		{"25%", "25%", true, false},
		{"101%", "0", false, false},
		{"-1", "0", false, false},
	} {
		t.Run(test.unavailable+" "+test.surge, func(t *testing.T) {
			unavailable, surge := intstr.Parse(test.unavailable), intstr.Parse(test.surge)
			deployment := validateDeploymentStrategy(field.NewPath("strategy"), &appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &unavailable, MaxSurge: &surge},
			})
			if (len(deployment) == 0) != test.deployment {
				t.Errorf("Deployment: %v, want allowed %v", deployment, test.deployment)
			}
			daemon := validateDaemonStrategy(field.NewPath("updateStrategy"), &appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge},
			})
			if (len(daemon) == 0) != test.daemon {
				t.Errorf("DaemonSet: %v, want allowed %v", daemon, test.daemon)
			}
		})
	}
}

// TestDeploymentGeneration checks which changes increment the generation:
// changes of the spec and of the annotations, which ReplicaSets copy, but not
// changes of labels.
func TestDeploymentGeneration(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*appsv1.Deployment)
		want   int64
	}{
		"nothing":     {func(*appsv1.Deployment) {}, 1},
		"labels":      {func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }, 1},
		"annotations": {func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }, 2},
		"spec":        {func(d *appsv1.Deployment) { d.Spec.Paused = true }, 2},
		"status":      {func(d *appsv1.Deployment) { d.Status.Replicas = 3 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			old := &appsv1.Deployment{}
			old.Generation = 1
			d := old.DeepCopy()
			test.change(d)
			Deployments().Strategy.PrepareForUpdate(&resource.RequestContext{}, d, old)
			if d.Generation != test.want {
				t.Errorf("generation is %d, want %d", d.Generation, test.want)
			}
		})
	}
}
