package wireguard

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// setKernel gives the kernel's interface its key, port and peers. It reports whether it
// had others. The caller holds d.mu.
func (d *Device) setKernel(name string, peers []Peer) (changed bool, err error) {
	client, err := wgctrl.New()
	if err != nil {
		return false, fmt.Errorf("reaching WireGuard of the kernel: %w", err)
	}
	defer func() { _ = client.Close() }()
	is, err := client.Device(name)
	if err != nil {
		return false, fmt.Errorf("reading the peers of %s: %w", name, err)
	}
	var config wgtypes.Config
	if is.PublicKey != wgtypes.Key(d.Identity().Key) {
		config.PrivateKey = new(wgtypes.Key(d.key.Bytes()))
	}
	if is.ListenPort != int(d.port) {
		config.ListenPort = new(int(d.port))
	}
	gone, set := difference(d.known(is.Peers), peers)
	for _, key := range gone {
		config.Peers = append(config.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(key), Remove: true})
	}
	for _, peer := range set {
		config.Peers = append(config.Peers, kernelPeer(peer))
	}
	if config.PrivateKey == nil && config.ListenPort == nil && len(config.Peers) == 0 {
		return false, nil
	}
	if err := client.ConfigureDevice(name, config); err != nil {
		return true, fmt.Errorf("giving %s its peers: %w", name, err)
	}
	d.last = slices.Clone(peers)
	return true, nil
}

// known returns the peers of the kernel with the endpoints that they were given: a peer
// that answers from another address has that one for a while.
func (d *Device) known(present []wgtypes.Peer) []Peer {
	var out []Peer
	for _, p := range present {
		peer := Peer{Key: Key(p.PublicKey)}
		if i := slices.IndexFunc(d.last, func(given Peer) bool { return given.Key == peer.Key }); i >= 0 {
			peer.Endpoint = d.last[i].Endpoint
		}
		for _, ips := range p.AllowedIPs {
			if address, ok := netip.AddrFromSlice(ips.IP); ok {
				ones, _ := ips.Mask.Size()
				peer.AllowedIPs = append(peer.AllowedIPs, netip.PrefixFrom(address.Unmap(), ones))
			}
		}
		slices.SortFunc(peer.AllowedIPs, netip.Prefix.Compare)
		out = append(out, peer)
	}
	return out
}

func kernelPeer(p Peer) wgtypes.PeerConfig {
	out := wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), Endpoint: net.UDPAddrFromAddrPort(p.Endpoint), ReplaceAllowedIPs: true}
	for _, ips := range p.AllowedIPs {
		out.AllowedIPs = append(out.AllowedIPs, net.IPNet{IP: ips.Addr().AsSlice(), Mask: net.CIDRMask(ips.Bits(), ips.Addr().BitLen())})
	}
	return out
}
