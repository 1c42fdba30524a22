package resource

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLongestGracePeriod checks that the longest grace period does not
// overflow to a time in the past, and that it can be shortened like any other.
func TestLongestGracePeriod(t *testing.T) {
	r := &Resource{DeleteStrategy: DeleteStrategy[Object]{GracePeriod: func(Object, *metav1.DeleteOptions) int64 { return math.MaxInt64 }}}
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

// TestDeletionFinalizers checks the finalizers of objects that are deleted, also
// of one with as many as fit into a request. To compare each of them with each
// takes a minute.
func TestDeletionFinalizers(t *testing.T) {
	const mine, orphan, foreground = "example.com/mine", metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	var many []string
	for i := range 150_000 {
		many = append(many, "a/"+strconv.Itoa(i))
	}
	for name, test := range map[string]struct {
		had    []string
		policy metav1.DeletionPropagation
		want   []string
	}{
		"none":                 {policy: metav1.DeletePropagationBackground},
		"own":                  {had: []string{mine}, policy: metav1.DeletePropagationBackground, want: []string{mine}},
		"foreground":           {had: []string{mine}, policy: metav1.DeletePropagationForeground, want: []string{mine, foreground}},
		"foreground as it is":  {had: []string{foreground, mine}, policy: metav1.DeletePropagationForeground, want: []string{foreground, mine}},
		"orphan in its place":  {had: []string{foreground, mine}, policy: metav1.DeletePropagationOrphan, want: []string{mine, orphan}},
		"background after all": {had: []string{orphan}, policy: metav1.DeletePropagationBackground},
		"many":                 {had: many, policy: metav1.DeletePropagationBackground, want: many},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: test.had}}
			got := DeletionFinalizers(pod, &metav1.DeleteOptions{PropagationPolicy: &test.policy}, metav1.DeletePropagationBackground)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %d: %.100q, want %d", len(got), got, len(test.want))
			}
		})
	}
}
