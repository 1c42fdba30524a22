package source

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRest(t *testing.T) {
	now := time.Unix(1000, 0)
	deleted := func(ago, grace int64) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: &metav1.Time{Time: now.Add(time.Duration(grace-ago) * time.Second)}, DeletionGracePeriodSeconds: &grace,
		}}
	}
	for name, c := range map[string]struct {
		mirror *v1.Pod
		want   time.Duration
	}{
		"none":             {nil, 0},
		"not deleted":      {&v1.Pod{}, 0},
		"deleted just now": {deleted(0, 30), 2 * time.Second},
		"a second ago":     {deleted(1, 30), time.Second},
		"long ago":         {deleted(10, 30), 0},
	} {
		if got := Rest(c.mirror, now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
