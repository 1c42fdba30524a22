package node

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestTransitions(t *testing.T) {
	fresh := Status(Facts{NotReady: []string{"starting"}, Now: time.Unix(1, 0)}, &v1.NodeStatus{})
	ready := Status(Facts{Now: time.Unix(2, 0)}, &fresh)
	short := Status(Facts{MemoryPressure: true, DiskPressure: true, PIDPressure: true, Now: time.Unix(3, 0)}, &ready)
	down := Status(Facts{NotReady: []string{"down"}, Now: time.Unix(4, 0)}, &short)
	for _, test := range []struct {
		before, after *v1.NodeStatus
		want          string
	}{
		{&v1.NodeStatus{}, &fresh, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID"},
		{&fresh, &ready, "NodeReady"},
		{&ready, &ready, ""},
		{&ready, &short, "NodeHasInsufficientMemory NodeHasDiskPressure NodeHasInsufficientPID"},
		{&short, &down, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID NodeNotReady"},
	} {
		if got := strings.Join(transitions(test.before, test.after), " "); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
