package connect

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// dialer connects to addresses that are allowed and no API server's own. It
// looks at the address that a connection is about to be made to, so that no
// name leads elsewhere than when it was checked.
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

// isKubelets says whether a kubelet may be at an address, which nodes say
// themselves: not where clouds tell machines their secrets. Kubelets of this
// machine may listen on loopback alone.
func isKubelets(a netip.Addr) bool { return a.IsGlobalUnicast() || a.IsLoopback() }
