package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/nodeaddress"
)

// TestWhichNodesFollowTheirMachine checks that a node that has joined without an address of
// its own gets those of its machine, and that others say why they do not.
func TestWhichNodesFollowTheirMachine(t *testing.T) {
	joined := asJoined(t)
	joined.AdvertiseAddress = nil
	for name, c := range map[string]struct {
		change func(*Options)
		fixed  string
	}{
		"joined":              {func(*Options) {}, ""},
		"with other flags":    {func(o *Options) { o.KubeletArgs = []string{"max-pods=9"} }, ""},
		"with an address":     {func(o *Options) { o.AdvertiseAddress = net.IPv4(192, 0, 2, 7) }, givenStays},
		"bound to an address": {func(o *Options) { o.BindAddress = "192.0.2.7" }, givenStays},
		"with --node-ip":      {func(o *Options) { o.KubeletArgs = []string{"--node-ip=192.0.2.7"} }, givenStays},
		"of a server":         {func(o *Options) { *o = withNodes(t, 1) }, serverStays},
		"of a server at a given address": {func(o *Options) {
			*o = withNodes(t, 1)
			o.APIServerArgs = []string{"advertise-address=192.0.2.7"}
		}, serverGiven},
	} {
		o := joined
		c.change(&o)
		s, err := complete(o)
		if err != nil {
			t.Fatal(name, err)
		}
		k := component.NewKubelet()
		k.Config.NodeIPs = []string{"192.0.2.7"}
		f := s.follow(k, nil)
		machine, follows := k.Config.Machine.(node.Addressed)
		if c.fixed != "" {
			c.fixed = fmt.Sprintf(c.fixed, o.Name)
		}
		if f.Fixed != c.fixed || follows != (c.fixed == "") || !slices.Equal(f.List.Now(), k.Config.NodeIPs) {
			t.Errorf("%s: the node has %q, follows its machine: %v, or stays because %q; want %q", name, f.List.Now(), follows, f.Fixed, c.fixed)
		}
		if follows && machine.Addresses() != f.List {
			t.Errorf("%s: the kubelet has other addresses than the node", name)
		}
	}
}

// TestANodeHasAnotherAddress checks that routes, the tunnel and the announcer know it.
func TestANodeHasAnotherAddress(t *testing.T) {
	n, err := NewNode(asJoined(t))
	if err != nil {
		t.Fatal(err)
	}
	n.addresses.List.Set([]string{"192.0.2.9", "2001:db8::9"})
	routes := n.routes()
	if plan := routes.Plan(prefixes("10.244.0.0/25"), nil, nil); plan.Tunnel.Local.String() != "192.0.2.9" || len(routes.Own) != 2 {
		t.Errorf("the tunnel is at %s, and routes begin at %v", plan.Tunnel.Local, routes.Own)
	}
	if n.primary().String() != "192.0.2.9" || !slices.Equal(n.reachable(), n.ips()) {
		t.Errorf("the pods have the MTU of %s, and other machines reach the node at %q", n.primary(), n.reachable())
	}
}

// TestComponentsBeginAgainWithAnotherAddress checks that what takes the addresses of the node
// at its start is run again when they have changed.
func TestComponentsBeginAgainWithAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{addresses: &nodeaddress.Follower{List: nodeaddress.NewList("192.0.2.1")}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var saw []string
		go func() {
			ended <- n.withAddresses(ctx, func(ctx context.Context) error {
				saw = append(saw, n.ips()...)
				<-ctx.Done()
				return nil
			})
		}()
		for _, next := range []string{"192.0.2.2", "192.0.2.3"} {
			synctest.Wait()
			n.addresses.List.Set([]string{next})
		}
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || !slices.Equal(saw, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}) {
			t.Errorf("it ran with %q, and ended with %v", saw, err)
		}
	})
}
