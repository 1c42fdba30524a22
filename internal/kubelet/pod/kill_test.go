package pod

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The shortest of what an eviction or a probe gives a pod and what its deletion gives
// it counts, and without either what its specification says.
func TestGracePeriod(t *testing.T) {
	for _, test := range []struct {
		name                     string
		spec, deletion, override *int64
		want                     int64
	}{
		{"nothing", nil, nil, nil, 30},
		{"the pod's own", new(int64(60)), nil, nil, 60},
		{"an override", new(int64(60)), nil, new(int64(90)), 90},
		{"a deletion", new(int64(60)), new(int64(5)), nil, 5},
		{"a deletion after an override", new(int64(60)), new(int64(5)), new(int64(20)), 5},
		{"an override after a deletion", new(int64(60)), new(int64(60)), new(int64(1)), 1},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: test.spec}}
		p.DeletionGracePeriodSeconds = test.deletion
		if got := GracePeriod(p, test.override); got != test.want {
			t.Errorf("%s: %d s, want %d s", test.name, got, test.want)
		}
	}
}

// Addresses are in the order of the node's families, one of each.
func TestOrderOfAddresses(t *testing.T) {
	v4, v6 := []string{"192.0.2.1"}, []string{"2001:db8::1", "192.0.2.1"}
	for _, test := range []struct{ ips, node, want []string }{
		{nil, v4, nil},
		{[]string{"10.0.0.1"}, v4, []string{"10.0.0.1"}},
		{[]string{"fd00::1"}, v4, []string{"fd00::1"}},
		{[]string{"10.0.0.1", "fd00::1"}, v4, []string{"10.0.0.1", "fd00::1"}},
		{[]string{"fd00::1", "10.0.0.1"}, v4, []string{"10.0.0.1", "fd00::1"}},
		{[]string{"10.0.0.1", "fd00::1"}, v6, []string{"fd00::1", "10.0.0.1"}},
		{[]string{"10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"}, v4, []string{"10.0.0.1", "fd00::1"}},
		{[]string{"fd00::1", "10.0.0.1"}, nil, []string{"10.0.0.1", "fd00::1"}},
	} {
		if got := ordered(test.ips, test.node); !slices.Equal(got, test.want) {
			t.Errorf("%v on the node %v: %v, want %v", test.ips, test.node, got, test.want)
		}
	}
}
