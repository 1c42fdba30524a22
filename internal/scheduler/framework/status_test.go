package framework

import (
	"fmt"
	"testing"
)

// Nodes without a status of their own have that of the others, in either form.
func TestNumWith(t *testing.T) {
	full, far := NewStatus(Unschedulable, "X", "full"), NewStatus(UnschedulableAndUnresolvable, "X", "far")
	var nodes []*NodeInfo
	for i := range 4 {
		nodes = append(nodes, &NodeInfo{Name: fmt.Sprint("n", i), Slot: i})
	}
	listed := NodesToStatuses(far, nodes, []*Status{full, full, far, full})
	named := NewNodeToStatus(full, 0)
	named.Set("n0", far)
	for _, test := range []struct {
		name      string
		of        *NodeToStatus
		full, far int
	}{
		{"in a list", listed, 3, 3},
		{"by name", named, 5, 1},
		{"by name, without others", NewNodeToStatus(nil, 0), 0, 0},
	} {
		if a, b := test.of.NumWith(Unschedulable, 6), test.of.NumWith(UnschedulableAndUnresolvable, 6); a != test.full || b != test.far {
			t.Errorf("%s: %d and %d, want %d and %d", test.name, a, b, test.full, test.far)
		}
	}
}
