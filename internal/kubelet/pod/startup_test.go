package pod

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// A start counts once, from the creation of the pod. Pulls that overlap, and init
// containers, do not count for the indicator, nor do pods with volumes from elsewhere.
func TestStartups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStartups()
		want := func(when string, h prometheus.Histogram, count uint64, sum float64) {
			t.Helper()
			m := &dto.Metric{}
			if err := h.Write(m); err != nil {
				t.Fatal(err)
			}
			if got := m.GetHistogram(); got.GetSampleCount() != count || got.GetSampleSum() != sum {
				t.Errorf("%s: %d in %v s, want %d in %v s", when, got.GetSampleCount(), got.GetSampleSum(), count, sum)
			}
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", CreationTimestamp: metav1.Now()}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
		claiming := pod.DeepCopy()
		claiming.UID, claiming.Spec.Volumes = "b", []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		s.watched(pod)
		s.watched(claiming)
		time.Sleep(time.Second)
		first := s.pull(pod.UID)
		time.Sleep(2 * time.Second)
		second := s.pull(pod.UID)
		time.Sleep(time.Second)
		first()
		time.Sleep(time.Second)
		second()
		began := metav1.Now()
		time.Sleep(5 * time.Second)
		running := func(p *v1.Pod) *v1.Pod {
			p = p.DeepCopy()
			p.Status = v1.PodStatus{
				StartTime:             &began,
				InitContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: began, FinishedAt: metav1.NewTime(began.Add(2 * time.Second))}}}},
				ContainerStatuses:     []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}}},
			}
			return p
		}
		waiting := running(pod)
		waiting.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
		s.watched(waiting)
		want("before the start", s.total, 0, 0)
		for range 2 {
			s.watched(running(pod))
		}
		want("with pulls", s.total, 1, 10)
		want("without pulls", s.indicator, 1, 4)
		s.watched(running(claiming))
		want("with a claim", s.total, 2, 20)
		want("with a claim", s.indicator, 1, 4)
		old := running(pod)
		old.UID = "c"
		for range 2 {
			s.watched(old)
		}
		want("a pod from before the kubelet's start", s.total, 2, 20)
		if len(s.pods) > 0 {
			t.Errorf("%d pods are kept", len(s.pods))
		}
	})
}
