package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Why the address of a node of a cluster stays, and what to do when the machine has lost it.
const (
	serverStays = "the node of a server keeps its address: give the machine this address again or, if there is no other server, run coracle restart %s"
	serverGiven = "it was given: give the machine this address again, or start cluster %s with another one"
	givenStays  = "the node keeps an address that was given with --node-ip: give the machine this address again, or run coracle leave %s and join with another one"
)

// follow returns what keeps the addresses of a node, whose kubelet has its flags, at those
// of the machine. moving is called before they change. Only a node that has joined without
// --node-ip gets others while it runs: the certificates of a server, and the other servers,
// name its address (keepaddress.go).
func (o *settings) follow(k *component.Kubelet, moving func()) *nodeaddress.Follower {
	f := &nodeaddress.Follower{Machine: nodeaddress.Kernel{}, List: nodeaddress.NewList(k.Config.NodeIPs...), Moving: moving}
	switch {
	case !o.joined() && o.givesAddress():
		f.Fixed = fmt.Sprintf(serverGiven, o.Name)
	case !o.joined():
		f.Fixed = fmt.Sprintf(serverStays, o.Name)
	case o.givesAddress():
		f.Fixed = fmt.Sprintf(givenStays, o.Name)
	default:
		k.Config.Machine = &node.Local{Disk: k.Config.RootDirectory, IPs: f.List}
	}
	return f
}

// givesAddress reports whether the address of the server or the node was chosen by
// somebody.
func (o *settings) givesAddress() bool {
	given := func(arguments []string, names ...string) bool {
		return slices.ContainsFunc(arguments, func(argument string) bool {
			return slices.Contains(names, flagvalue.ParseArgument(argument).Name)
		})
	}
	return o.AdvertiseAddress != nil || !o.parsed.bind.IsUnspecified() || given(o.APIServerArgs, "advertise-address", "bind-address") ||
		o.Node != nil && given(o.KubeletArgsOf(o.Node.Number), "node-ip")
}

// ips returns the addresses of the node, the primary one first.
func (n *Node) ips() []string { return n.addresses.List.Now() }

// primary returns the first address of the node, an invalid one if it has none.
func (n *Node) primary() netip.Addr {
	if own := parseAddresses(n.ips()); len(own) > 0 {
		return own[0]
	}
	return netip.Addr{}
}

// withAddresses runs what takes the addresses of the node when it begins, and again when
// they have changed, until ctx ends.
func (n *Node) withAddresses(ctx context.Context, run func(context.Context) error) error {
	changed, stop := n.addresses.List.Watch()
	defer stop()
	for {
		var moved atomic.Bool
		err := supervise.Run(ctx, func(ctx context.Context) error {
			ctx, end := context.WithCancel(ctx)
			defer end()
			supervise.Go(ctx, func() {
				select {
				case <-ctx.Done():
				case <-changed:
					moved.Store(true)
					end()
				}
			})
			return run(ctx)
		})
		if err != nil || !moved.Load() || ctx.Err() != nil {
			return err
		}
	}
}

// connections are those of the node's components to the API server.
type connections struct {
	mu   sync.Mutex // guards what follows
	open map[*client.Remote]bool
}

// add adds those of a component, until remove is called.
func (c *connections) add(r *client.Remote) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*client.Remote]bool{}
	}
	c.open[r] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, r)
	}
}

// close closes all of them. Components open others.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.open {
		r.CloseConnections()
	}
}
