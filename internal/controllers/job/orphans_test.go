package job

import (
	"testing"
	"testing/synctest"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// A pod that no Job counts loses the tracking finalizer, also if a Job has the name of its
// former owner. Otherwise the pod could not be deleted.
func TestPodsOfFormerJobsLoseFinalizer(t *testing.T) {
	for _, c := range []struct {
		about  string
		change func(p *v1.Pod)
		keeps  bool
	}{
		{"of a Job that was replaced", func(p *v1.Pod) { p.OwnerReferences[0].UID = "former" }, false},
		{"of a Job that is gone", func(p *v1.Pod) { p.OwnerReferences[0].Name = "other" }, false},
		{"released", func(p *v1.Pod) {
			p.OwnerReferences = nil
			p.Labels = map[string]string{batch.JobNameLabel: "work"}
		}, false},
		{"released, without labels", func(p *v1.Pod) { p.OwnerReferences, p.Labels = nil, nil }, false},
		{"of the Job", func(*v1.Pod) {}, true},
		{"of another controller", func(p *v1.Pod) { p.OwnerReferences[0].Kind = "Boat" }, true},
	} {
		t.Run(c.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := jobOf(1, 1, 6, batch.NonIndexedCompletion)
				pod := podOf(job, 0, -1, v1.PodRunning)
				c.change(pod)
				cluster := controllertest.New(t, job, pod)
				cluster.Run(Descriptor())
				synctest.Wait()
				got, err := cluster.Fake.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if tracked(got) != c.keeps {
					t.Errorf("finalizers %v, want the tracking finalizer: %v", got.Finalizers, c.keeps)
				}
			})
		})
	}
}
