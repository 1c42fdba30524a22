package resource

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The longest grace period is a long time to go, not one that is over; it can
// be shortened as any other.
func TestLongestGracePeriod(t *testing.T) {
	r := &Resource{GracePeriod: func(Object, *metav1.DeleteOptions) int64 { return math.MaxInt64 }}
	pod, now := &v1.Pod{}, time.Unix(1_800_000_000, 0)
	applyGrace(r, pod, &metav1.DeleteOptions{}, now)
	if pod.DeletionTimestamp.Before(new(metav1.NewTime(now.AddDate(200, 0, 0)))) {
		t.Errorf("the pod is to be gone at %v", pod.DeletionTimestamp)
	}
	applyGrace(r, pod, &metav1.DeleteOptions{GracePeriodSeconds: new(int64(30))}, now)
	if left := pod.DeletionTimestamp.Sub(now); left < 29*time.Second || left > 30*time.Second || *pod.DeletionGracePeriodSeconds != 30 {
		t.Errorf("shortened to 30 seconds, it has %v and is given %d", left, *pod.DeletionGracePeriodSeconds)
	}
}
