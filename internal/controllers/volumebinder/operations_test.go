package volumebinder

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// The time from the request for a volume until the claim has it is measured, and
// that from the release of a volume until it is gone, which counts the attempts
// that fail.
func TestOperationsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wanted := claim("c", "2Gi")
		wanted.Spec.StorageClassName = new("made")
		c := controllertest.New(t, wanted,
			&storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Provisioner: "example.com/made"},
			releasedVolume("old"))
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		d, _ := busyTwice()
		c.Run(d)
		time.Sleep(2 * time.Second)
		made := volumeOf("v", "5Gi", func(v *v1.PersistentVolume) {
			v.Spec.StorageClassName = "made"
			v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "c", UID: "claim-uid"}
		})
		if _, err := c.Fake.CoreV1().PersistentVolumes().Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)

		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			if family.GetName() != "volume_operation_total_seconds" {
				continue
			}
			for _, m := range family.GetMetric() {
				key := ""
				for _, label := range m.GetLabel() { // sorted by name
					key += label.GetValue() + " "
				}
				got[key] = m.GetHistogram().GetSampleSum()
			}
		}
		if took := got["provision example.com/made "]; took < 1 || took > 3 {
			t.Errorf("provisioning took %v s, want 2: %v", took, got)
		}
		if took := got["delete kubernetes.io/host-path "]; took < 29 || took > 31 {
			t.Errorf("deletion took %v s, want two pauses of 15: %v", took, got)
		}
		const failures = "# HELP volume_operation_errors_total [ALPHA] Total volume operation errors\n# TYPE volume_operation_errors_total counter\n" +
			`volume_operation_errors_total{operation_name="delete",plugin_name="kubernetes.io/host-path"} 2` + "\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(failures), "volume_operation_errors_total"); err != nil {
			t.Error(err)
		}
	})
}
