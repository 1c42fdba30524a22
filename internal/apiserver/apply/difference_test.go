package apply

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Times are equal as they are in JSON, which the library compares.
func TestEqualLeavesOfTimes(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.UTC)
	times := []time.Time{
		{}, time.Time{}.Add(time.Nanosecond), time.Time{}.Add(time.Second), time.Unix(0, 0), time.Unix(-1, 999_999_999),
		now, now.In(time.FixedZone("", 3600)), now.Add(time.Nanosecond), now.Add(time.Microsecond), now.Add(time.Second), now.Truncate(time.Second),
	}
	compare := func(l, r any) {
		t.Helper()
		left, right := reflect.ValueOf(l), reflect.ValueOf(r)
		if got, want := equalLeaves(left, right), value.Equals(valueOf(left), valueOf(right)); got != want {
			t.Errorf("%#v and %#v: equal %v, want %v", l, r, got, want)
		}
	}
	for _, l := range times {
		for _, r := range times {
			compare(metav1.Time{Time: l}, metav1.Time{Time: r})
			compare(metav1.MicroTime{Time: l}, metav1.MicroTime{Time: r})
			compare(&metav1.Time{Time: l}, &metav1.Time{Time: r})
			compare((*metav1.MicroTime)(nil), &metav1.MicroTime{Time: r})
		}
	}
}
