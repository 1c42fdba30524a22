package source

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRecreateDelay(t *testing.T) {
	now := time.Unix(1000, 0)
	deleted := func(ago, grace int64) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: &metav1.Time{Time: now.Add(time.Duration(grace-ago) * time.Second)}, DeletionGracePeriodSeconds: &grace,
		}}
	}
	for name, c := range map[string]struct {
		mirror *v1.Pod
		seen   time.Duration // ago
		want   time.Duration
	}{
		"none":                               {nil, 0, 0},
		"not deleted":                        {&v1.Pod{}, 0, 0},
		"deleted just now":                   {deleted(0, 30), 0, 2 * time.Second},
		"a second ago":                       {deleted(1, 30), 0, time.Second},
		"long ago":                           {deleted(10, 30), 0, 0},
		"the clock was set back":             {deleted(-3600, 30), 0, 2 * time.Second},
		"the clock was set back, a while on": {deleted(-3600, 30), 1500 * time.Millisecond, 500 * time.Millisecond},
		"the clock was set back, long ago":   {deleted(-3600, 30), time.Minute, 0},
	} {
		if got := RecreateDelay(c.mirror, now.Add(-c.seen), now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
