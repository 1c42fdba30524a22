package cluster

import (
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/nodejoin"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/supervise"
)

// joined reports whether the control plane of this machine's node is on another
// machine.
func (o *settings) joined() bool { return o.Node != nil && o.Node.Joined != nil }

// identity returns the files of a node that has joined.
func (o *settings) identity() nodejoin.Files { return nodejoin.Files(nodeDir(o.DataDir)) }

// joinedAccess is the access of a node to a control plane on another machine. All
// components have the identity of the kubelet, with the rights that `coracle token
// create` gives to nodes. The API server issues the kubelet's serving certificate.
type joinedAccess struct{ remoteAccess }

// of returns the access of a node with these settings, whose files a has.
func (a remoteAccess) of(o *settings) access {
	if o.joined() {
		return joinedAccess{a}
	}
	return a
}

func (a joinedAccess) with(component string, run func(context.Context, client.Provider) error) func(context.Context) error {
	return a.as(apiserver.NodeKubelet, component, run)
}

func (a joinedAccess) serving(string, []net.IP) (certificate, authorities, error) {
	trust, err := pki.ReloadingAuthority(a.file(apiserver.NodeAuthority))
	return nil, trust, err
}

// configureJoined sets what differs for a node that has joined.
func (n *Node) configureJoined() {
	joined, k := n.settings.Node.Joined, n.kubelet
	n.nodeMaskSizes = [2]int{joined.NodeMaskSizeIPv4, joined.NodeMaskSizeIPv6}
	k.Config.CertDirectory, k.Config.Configuration.ServerTLSBootstrap = n.settings.identity().Certificates(), true
}

// renewIdentity renews the client certificate of a node that has joined, until ctx
// ends.
func (n *Node) renewIdentity(ctx context.Context) error {
	return n.settings.identity().Renew(ctx, n.settings.NodeName)
}

// refreshInfo gives the ConfigMap cluster-info, by which nodes find the cluster, the URL and
// the authority that the API server has since its start.
func (p *controlPlane) refreshInfo(ctx context.Context) error {
	advertised, err := p.api.Advertised()
	if err != nil || p.settings.InProcess || !advertised.IsGlobalUnicast() { // nodes find no server there
		return err
	}
	c := nodejoin.Cluster{Server: "https://" + net.JoinHostPort(advertised.String(), strconv.Itoa(p.api.Serving.Port))}
	if p.api.Serving.TLS.CertFile == "" { // otherwise another authority may have issued it
		c.Authority = p.keys.Cluster().PEM()
	}
	return c.Refresh(ctx, p.Client(), append(apiserver.ServingAddresses(p.keys), advertised))
}

// publishNetwork writes what nodes and servers that join must know of the network and
// the store of this cluster, and then waits until ctx ends.
func (p *controlPlane) publishNetwork(ctx context.Context, s store.Store) error {
	ipam := &p.manager.Options.NodeIPAM
	network := nodejoin.Network{
		ServiceCIDR: p.settings.ServiceCIDR, ClusterCIDR: p.settings.ClusterCIDR, NodeMaskSizeIPv4: ipam.MaskSizeIPv4(), NodeMaskSizeIPv6: ipam.MaskSizeIPv6(),
		NodePorts: p.api.Services.NodePortRange.String(),
	}
	if p.settings.Node != nil {
		network.Pods = p.settings.Node.Network
	}
	if p.settings.several() { // the first further node starts this process again
		network.NodeCIDR, network.Gateway = p.settings.Node.CIDR, p.settings.NodeName
	}
	if member, ok := s.(*etcd.Embedded); ok && p.etcd.Shared() { // any other one answers when this one is gone
		network.Etcd = strings.Join(member.ClientURLs(), ",")
	}
	if p.settings.Encrypt {
		network.Encryption = nodejoin.WireGuard
	}
	network, err := withGateway(ctx, p.Client(), network, p.settings.NodeName)
	if err == nil {
		err = network.Publish(ctx, p.Client())
	}
	if err == nil {
		err = p.refreshInfo(ctx)
	}
	supervise.Report(ctx, "Network", err)
	if err != nil {
		return err // it is tried again
	}
	<-ctx.Done()
	return nil
}
