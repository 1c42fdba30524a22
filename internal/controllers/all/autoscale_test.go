package all_test

import (
	"strings"
	"testing"
	"testing/synctest"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// TestAutoscaler bounds the replicas of a Deployment, and reports that its pods
// have no metrics, with the rights of the controller's role.
func TestAutoscaler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newShop(t), t.Context()
		labels, template := podTemplate("web")
		if _, err := c.AppsV1().Deployments("shop").Create(ctx, &apps.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       apps.DeploymentSpec{Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.AutoscalingV2().HorizontalPodAutoscalers("shop").Create(ctx, &autoscaling.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: autoscaling.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 2,
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() int32 {
			d, err := c.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return *d.Spec.Replicas
		}, 2)
		// A change of the spec is acted on at once.
		if _, err := c.AutoscalingV2().HorizontalPodAutoscalers("shop").Patch(ctx, "web", "application/merge-patch+json", []byte(`{"spec":{"maxReplicas":5}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() bool {
			hpa, err := c.AutoscalingV2().HorizontalPodAutoscalers("shop").Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, condition := range hpa.Status.Conditions {
				if condition.Type == autoscaling.ScalingActive {
					return strings.HasSuffix(condition.Message, "unable to get metrics for resource cpu: no metrics returned from resource metrics API")
				}
			}
			return false
		}, true)
	})
}
