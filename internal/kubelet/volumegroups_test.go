package kubelet

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The group in the annotation of a persistent volume is one of each container's,
// also of those that start later.
func TestGroupOfAVolume(t *testing.T) {
	for annotation, want := range map[string][]int64{"1234": {7, 1234}, "7": {7}, "-1": {7}, "staff": {7}} {
		t.Run(annotation, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				b.claimOf("c", &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: map[string]string{"pv.beta.kubernetes.io/gid": annotation}}})
				b.create(pod("web", withVolume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}), func(p *v1.Pod) {
					p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: []int64{7}}
				}))
				b.after(time.Minute)
				for range 2 {
					id := b.live("main")
					if id == "" {
						t.Fatal("the container does not run")
					}
					if got := b.runtime.Config(id).GetLinux().GetSecurityContext().GetSupplementalGroups(); !slices.Equal(got, want) {
						t.Errorf("groups %v, want %v", got, want)
					}
					b.runtime.Exit(id, 1)
					b.after(time.Minute)
				}
			})
		})
	}
}
