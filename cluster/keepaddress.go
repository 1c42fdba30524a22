package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/nodeaddress"
	"github.com/coracle-io/coracle/internal/simnode"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
)

// followsAddress reports whether a server takes another address of its machine when this
// has lost the present one (ControlPlaneOptions.FollowAddress). The files, the certificates
// and the components of the control plane have the address, so that its process begins
// again. That of the node follows once its files have the new one:
//
//	Keeper of the control plane ──► end ──► start: Advertised, KeepNode ──► DATA/node
//	Keeper of the node ◄── the kubelet's certificate there ──► end ──► start: NodeAddress
//
// The URLs of a member of etcd are in the options, so that the program changes them first
// (ControlPlaneOptions.MoveMember). The containers of simulated nodes would end with the
// process.
func (o *settings) followsAddress() bool {
	return o.ControlPlane.FollowAddress && !o.InProcess && !o.joined() && !o.givesAddress() && o.Simulated == nil && (o.Node == nil || o.Node.SeparateProcess)
}

// fixAddress chooses the address of a server that follows its machine, for as long as this
// control plane runs.
func (p *controlPlane) fixAddress() (err error) {
	if p.settings.followsAddress() {
		p.api.Serving.AdvertiseAddress, err = p.api.Advertised()
	}
	return err
}

// keepAddress runs what watches the address of the API server, and calls end with an error
// when another one is to take its place. It does nothing where the node says what the
// machine has lost, and where the address does not matter: no other machine reaches the server,
// or its nodes are simulated.
func (p *controlPlane) keepAddress(ctx context.Context, s store.Store, end context.CancelCauseFunc) {
	o := p.settings
	follows := o.followsAddress()
	if !follows && (o.Node != nil || o.Simulated != nil || o.InProcess || o.parsed.bind.IsLoopback()) {
		return
	}
	p.group.Go(ctx, "addresses", func(ctx context.Context) error {
		advertised, err := p.api.Advertised()
		if err != nil {
			return err
		}
		own, _ := netip.AddrFromSlice(advertised)
		k := &serverAddress{
			own: own.Unmap(), cluster: o.Name, follows: follows, given: o.givesAddress(), shared: p.sharedWith(s), chosen: p.api.Chosen, neighbour: p.neighbour,
			move: p.moveMember, end: end,
		}
		return (&nodeaddress.Keeper{Machine: nodeaddress.Kernel{}, Address: k.own, Judge: k.judge}).Run(ctx)
	})
}

// serverAddress is the address of an API server, and decides what follows when the machine
// has lost it.
type serverAddress struct {
	own       netip.Addr
	cluster   string
	follows   bool // another address may take its place
	given     bool
	shared    func() bool                           // other servers may use the same etcd
	chosen    func() (net.IP, error)                // the address that a server chooses that begins now
	neighbour func(context.Context) (string, error) // a node of another machine, "" if there is none
	// move stores for the next start what it cannot find out itself.
	move func(ctx context.Context, to net.IP) error
	end  context.CancelCauseFunc
}

// judge implements nodeaddress.Keeper.Judge. It is no error to lack an address that was given
// and has never been the machine's, which another machine may translate, or is one of a
// cluster's interface, which the cluster restores.
func (a *serverAddress) judge(ctx context.Context, loss nodeaddress.Loss) error {
	if !loss.Lost || a.given && (loss.Had == "" || clusternames.IsClusters(loss.Had)) {
		return nil
	}
	stays := func(format string, args ...any) error {
		return fmt.Errorf("this machine has lost %s, the address of its API server: %w", a.own, fmt.Errorf(format, args...))
	}
	const again = "give the machine this address again"
	switch {
	case a.given:
		return stays(serverGiven, a.cluster)
	case !a.follows:
		return stays("%s, or start cluster %s again for another one", again, a.cluster)
	case a.shared():
		return stays("other servers may use the same etcd: %s", again)
	}
	node, err := a.neighbour(ctx)
	if err != nil {
		return stays("look for nodes of other machines: %w", err)
	}
	if node != "" {
		return stays("node %s of another machine knows it: %s; after coracle restart %s, the server has another one, and such nodes must join again", node, again, a.cluster)
	}
	next, err := a.chosen()
	if err != nil || !loss.Next.IsValid() || next.Equal(a.own.AsSlice()) {
		return stays("it has no other one with a default route, nor a new one on the same interface: the server gets the next one")
	}
	if (next.To4() != nil) != a.own.Is4() {
		return stays("the server would get %s, which is of another family: it gets the next one of its own", next)
	}
	if loss.For < nodeaddress.Patience {
		return stays("after %v, the server gets another one", nodeaddress.Patience)
	}
	if err := a.move(ctx, next); err != nil {
		return stays("store that the server gets %s: %w", next, err)
	}
	err = stays("the control plane begins again with %s", next)
	a.end(err)
	return err
}

// sharedWith returns a function that reports whether other servers may use the objects of
// the store. A member of etcd that is alone has them for itself: others would join at the
// address that is lost.
func (p *controlPlane) sharedWith(s store.Store) func() bool {
	member, ok := s.(*etcd.Embedded)
	return func() bool {
		return p.shared() && (!ok || p.settings.ControlPlane.MoveMember == nil || !member.Alone())
	}
}

// moveMember stores the address at which others reach the member of etcd, if they can.
func (p *controlPlane) moveMember(ctx context.Context, to net.IP) error {
	if !p.shared() {
		return nil
	}
	return p.settings.ControlPlane.MoveMember(ctx, to)
}

// neighbour returns the name of a node that is on another machine, "" if there is none.
func (p *controlPlane) neighbour(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, behindTimeout)
	defer cancel()
	nodes, err := p.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	own := ownNodes(p.settings)
	for i := range nodes.Items {
		if node := &nodes.Items[i]; !own[node.Name] && node.Labels[simnode.Label] == "" {
			return node.Name, nil
		}
	}
	return "", nil
}

// ownNodes returns the names of the nodes of this machine.
func ownNodes(o *settings) map[string]bool {
	own := map[string]bool{}
	if o.Node == nil {
		return own
	}
	for _, name := range o.present() {
		own[name] = true
	}
	k := component.NewKubelet()
	k.Config.NodeName = o.NodeName
	_ = o.setKubelet(1, k.AddFlags) // wrong arguments keep the node from its start
	own[k.Config.NodeName] = true
	return own
}

// errMoved reports that the server of a node has another address.
var errMoved = errors.New("the control plane has another address")

// runAddresses keeps the addresses of the node, until ctx ends.
func (n *Node) runAddresses(ctx context.Context) error {
	if n.keeper != nil {
		return n.keeper.Run(ctx)
	}
	return n.addresses.Run(ctx)
}

// nodeKeeper returns what ends the node of a server that has another address: the kubelet's
// certificate is for that one. The control plane's process reports what the machine has lost.
// nodeAddress returns the address of a node that begins now, by the files in a directory.
func nodeKeeper(n *Node, nodeAddress func(dir string) (net.IP, error)) *nodeaddress.Keeper {
	own, dir := n.primary(), nodeDir(n.settings.DataDir)
	judge := func(_ context.Context, loss nodeaddress.Loss) error {
		select {
		case <-n.ready: // before, its end would be that of a new cluster
		default:
			return nil
		}
		valid := apiserver.KubeletAddresses(dir)
		has := func(ip net.IP) bool { return slices.ContainsFunc(valid, ip.Equal) }
		if len(valid) == 0 || has(own.AsSlice()) && (!loss.Lost || loss.For < nodeaddress.Patience) {
			return nil
		}
		if next, err := nodeAddress(dir); err == nil && has(next) && !next.Equal(own.AsSlice()) {
			n.leave(fmt.Errorf("%w: the node begins again with %s in place of %s", errMoved, next, own))
		}
		return nil
	}
	return &nodeaddress.Keeper{Machine: nodeaddress.Kernel{}, Address: own, Judge: judge}
}
