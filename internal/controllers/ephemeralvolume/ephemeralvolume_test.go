package ephemeralvolume

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "plain"}, {Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
			VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
			},
		}}}}},
	}
}

func TestClaimsAreCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, pod("web"), pod("taken"), &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "taken-scratch"}})
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		synctest.Wait()
		api := c.Fake.CoreV1().PersistentVolumeClaims("shop")
		made := func() string {
			claim, err := api.Get(context.Background(), "web-scratch", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return claim.Labels["a"] + " " + string(claim.Spec.AccessModes[0]) + " " + metav1.GetControllerOf(claim).Name
		}
		controllertest.Eventually(t, made, "b ReadWriteOnce web")
		if err := api.Delete(context.Background(), "web-scratch", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, made, "b ReadWriteOnce web")
		var events string
		controllertest.Eventually(t, func() bool {
			events += strings.Join(c.DrainEvents(), "\n")
			return strings.Contains(events, `Warning FailedBinding ephemeral volume scratch: PVC`)
		}, true)
		err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP ephemeral_volume_controller_create_failures_total [ALPHA] Number of PersistentVolumeClaim creation request failures
# TYPE ephemeral_volume_controller_create_failures_total counter
ephemeral_volume_controller_create_failures_total 0
# HELP ephemeral_volume_controller_create_total [ALPHA] Number of PersistentVolumeClaim creation requests
# TYPE ephemeral_volume_controller_create_total counter
ephemeral_volume_controller_create_total 2
`))
		if err != nil {
			t.Error(err)
		}
	})
}
