package volume_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
)

// TestLastPhaseTransitionTime checks that the server sets the time of a phase
// change, and that it keeps a different time that the client sends.
func TestLastPhaseTransitionTime(t *testing.T) {
	volumes := volume.PersistentVolumes()
	before, requested := metav1.NewTime(noon.Add(-time.Hour)), metav1.NewTime(noon.Add(-time.Minute))
	for name, test := range map[string]struct {
		phase           corev1.PersistentVolumePhase
		requested, want *metav1.Time
	}{
		"the same phase, no time":      {corev1.VolumeAvailable, nil, &before},
		"the same phase, another time": {corev1.VolumeAvailable, &requested, &requested},
		"another phase, no time":       {corev1.VolumeBound, nil, &metav1.Time{Time: noon}},
		"another phase, the old time":  {corev1.VolumeBound, &before, &metav1.Time{Time: noon}},
		"another phase, its own time":  {corev1.VolumeBound, &requested, &requested},
	} {
		t.Run(name, func(t *testing.T) {
			old := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "u", ResourceVersion: "1"}}
			old.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable, LastPhaseTransitionTime: &before}
			next := old.DeepCopy()
			next.Status = corev1.PersistentVolumeStatus{Phase: test.phase, LastPhaseTransitionTime: test.requested}
			for _, s := range volumes.Subresources {
				if s.Name == "status" {
					s.PrepareForUpdate(&resource.RequestContext{Now: noon}, next, old)
				}
			}
			if got := next.Status.LastPhaseTransitionTime; !got.Equal(test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// noon is the time of the tests.
var noon = time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)
