package cluster

import "testing"

func TestWhichNodesServeIngresses(t *testing.T) {
	for what, test := range map[string]struct {
		node   NodeOptions
		serves bool
	}{
		"the first":           {NodeOptions{Number: 1}, true},
		"a further one":       {NodeOptions{Number: 2}, false},
		"one that has joined": {NodeOptions{Number: 1, Joined: &JoinedNode{}}, false},
		"if turned off":       {NodeOptions{Number: 1, Ingress: IngressOptions{Off: true}}, false},
	} {
		o := &settings{Options: Options{Node: &test.node}}
		if got := o.servesIngresses(); got != test.serves {
			t.Errorf("%s: %v, want %v", what, got, test.serves)
		}
	}
}
