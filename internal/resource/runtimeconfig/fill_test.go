package runtimeconfig

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

// fillers return values of types whose fields depend on each other.
func fillers() []any {
	return []any{
		func(m *metav1.ObjectMeta, c randfill.Continue) { m.Name, m.Generation = "a", c.Int63() },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(c.Int63n(1<<32), 0).UTC() },
		func(t *metav1.MicroTime, c randfill.Continue) { t.Time = time.UnixMicro(c.Int63n(1 << 50)).UTC() },
		func(e *runtime.RawExtension, _ randfill.Continue) { e.Raw = []byte(`{"n":9007199254740993}`) },
		func(s *intstr.IntOrString, c randfill.Continue) { *s = intstr.FromInt32(c.Int31()) },
	}
}
