package connect

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// dialer returns a dial function that refuses addresses that are not allowed
// and addresses of API servers. It checks the resolved address just before
// connecting, so that a name cannot resolve to another address afterwards.
func (c Config) dialer(allowed func(netip.Addr) bool) func(context.Context, string, string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		to = netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port())
		if !allowed(to.Addr()) || c.Own != nil && c.Own(to) {
			return notProxied()
		}
		return nil
	}}
	return d.DialContext
}

// isKubelets reports whether a kubelet may listen at an address. Nodes choose
// their addresses, so link-local ones are refused: clouds serve secrets of
// machines there. Kubelets of this machine may listen on loopback only.
func isKubelets(a netip.Addr) bool { return a.IsGlobalUnicast() || a.IsLoopback() }
