package cluster

import (
	"slices"
	"testing"
)

func TestWhichNodesServeIngresses(t *testing.T) {
	for what, test := range map[string]struct {
		node   NodeOptions
		secure int
		ports  []uint16
	}{
		"the first":           {NodeOptions{Number: 1}, 6443, []uint16{80, 443}},
		"at other ports":      {NodeOptions{Number: 1, Ingress: IngressOptions{HTTPPort: 8080, HTTPSPort: 8443}}, 6443, []uint16{8080, 8443}},
		"beside an API":       {NodeOptions{Number: 1}, 443, []uint16{80}},
		"a further one":       {NodeOptions{Number: 2}, 6443, nil},
		"one that has joined": {NodeOptions{Number: 1, Joined: &JoinedNode{}}, 6443, nil},
		"if turned off":       {NodeOptions{Number: 1, Ingress: IngressOptions{Off: true}}, 6443, nil},
	} {
		o := &settings{Options: Options{Node: &test.node, Ports: Ports{Secure: test.secure}}}
		if serves, ports := o.servesIngresses(), o.ingressPorts(); serves != (test.ports != nil) || !slices.Equal(ports, test.ports) {
			t.Errorf("%s: %v at %v, want %v", what, serves, ports, test.ports)
		}
	}
}
