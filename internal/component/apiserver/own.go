package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/serviceresolver"
)

// ownAddresses knows where the cluster's API servers listen: this one, and those
// behind the Service kubernetes. Users choose some of the addresses that this
// server connects to (a node's address, an APIService's Service). They must not
// make it connect to an API server with its own credentials.
type ownAddresses struct {
	services *serviceresolver.Resolver
	port     atomic.Uint32 // of this server; 0 until it listens
}

func newOwnAddresses(source objects.Source) *ownAddresses {
	return &ownAddresses{services: serviceresolver.New(source)}
}

// listen records the port of this server.
func (o *ownAddresses) listen(at net.Addr) {
	if tcp, ok := at.(*net.TCPAddr); ok {
		o.port.Store(uint32(tcp.Port))
	}
}

// has reports whether an API server listens at an address. It is called for each
// new connection, not for each request.
func (o *ownAddresses) has(to netip.AddrPort) bool {
	if port := o.port.Load(); port != 0 && uint32(to.Port()) == port && ofThisMachine(to.Addr()) {
		return true
	}
	const name = "kubernetes"
	if service, ok := o.services.Get(metav1.NamespaceDefault, name); ok {
		for _, ip := range service.Spec.ClusterIPs {
			for i := range service.Spec.Ports {
				if same(ip, service.Spec.Ports[i].Port, to) {
					return true
				}
			}
		}
	}
	for _, slice := range o.services.Slices(metav1.NamespaceDefault, name) {
		for i := range slice.Endpoints {
			for _, ip := range slice.Endpoints[i].Addresses {
				for _, port := range slice.Ports {
					if port.Port != nil && same(ip, *port.Port, to) {
						return true
					}
				}
			}
		}
	}
	return false
}

func same(ip string, port int32, to netip.AddrPort) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Unmap() == to.Addr() && port == int32(to.Port())
}

func ofThisMachine(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // refuse, because no address is known to be another machine's
	}
	for _, one := range all {
		if n, ok := one.(*net.IPNet); ok && n.IP.Equal(a.AsSlice()) {
			return true
		}
	}
	return false
}

// dialOthers dials an address, but not an address of the cluster's API servers.
func (o *ownAddresses) dialOthers(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err == nil && o.has(netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port())) {
			err = fmt.Errorf("%s is this API server itself: an APIService must name another server", address)
		}
		return err
	}}
	return d.DialContext(ctx, network, address)
}
