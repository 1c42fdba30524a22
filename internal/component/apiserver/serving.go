package apiserver

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// ServingOptions say where the API server listens, and under which addresses
// clients reach it.
type ServingOptions struct {
	BindAddress      net.IP
	AdvertiseAddress net.IP
	// AdvertiseLoopback advertises 127.0.0.1 if the machine has no other
	// address, for clusters whose members all run on it. It has no flag.
	AdvertiseLoopback bool
	// NodesAddress is the address at which further nodes of this machine reach the
	// server; nil if there are none. It has no flag.
	NodesAddress     net.IP
	ExternalHostname string
	Port             int
	// FreePort allows Port to be 0, which means a free port. It has no flag.
	FreePort bool
	CertDir  string
	TLS      TLSOptions
}

func newServingOptions() ServingOptions {
	return ServingOptions{BindAddress: net.IPv4zero, Port: 6443, CertDir: "/var/run/kubernetes"}
}

func (o *ServingOptions) addFlags(fs *pflag.FlagSet) {
	fs.IPVar(&o.BindAddress, "bind-address", o.BindAddress, "address to listen on")
	fs.IPVar(&o.AdvertiseAddress, "advertise-address", o.AdvertiseAddress, "address of this server as members of the cluster see it; the default is the bind address, or that of the default route")
	fs.StringVar(&o.ExternalHostname, "external-hostname", o.ExternalHostname, "host, with or without a port, in URLs for clients outside the cluster, such as that of the token keys; the default is the advertised address")
	fs.IntVar(&o.Port, "secure-port", o.Port, "port to serve HTTPS on")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir, "directory of the components' keys, certificates and kubeconfigs; missing ones are created")
	flagvalue.Is(fs, flagvalue.Address, "bind-address")
	flagvalue.Is(fs, flagvalue.Host, "external-hostname")
	flagvalue.Is(fs, flagvalue.Path, "cert-dir")
	o.TLS.addFlags(fs)
}

func (o *ServingOptions) validate() []error {
	var errs []error
	if o.Port < 0 || o.Port > 65535 || o.Port == 0 && !o.FreePort {
		errs = append(errs, fmt.Errorf("--secure-port=%d: want a port from 1 to 65535", o.Port))
	}
	return append(errs, o.TLS.validate()...)
}

// Listen opens the secure port.
func (o *Options) Listen() (net.Listener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{IP: o.Serving.BindAddress, Port: o.Serving.Port})
}

// serverURL returns the URL of the server for components on this machine. Its
// host is the bind address or, if that is unspecified, the given address.
func (o *Options) serverURL(address net.IP) string {
	if o.Serving.BindAddress != nil && !o.Serving.BindAddress.IsUnspecified() {
		address = o.Serving.BindAddress
	}
	return "https://" + net.JoinHostPort(address.String(), strconv.Itoa(o.Serving.Port))
}

// addresses returns the addresses of the serving certificate: the first of each
// Service range, the advertised address, that for further nodes, and the bind
// address unless it is unspecified.
func (o *Options) addresses() ([]net.IP, error) {
	ranges, err := o.Services.Ranges()
	if err != nil {
		return nil, err
	}
	var ips []net.IP
	for _, r := range ranges {
		ip, err := netutils.GetIndexedIP(r, 1)
		if err != nil {
			return nil, err
		}
		ips = append(ips, ip)
	}
	advertised, err := o.Advertised()
	if err != nil {
		return nil, err
	}
	ips = append(ips, advertised)
	if o.Serving.NodesAddress != nil {
		ips = append(ips, o.Serving.NodesAddress)
	}
	if !o.Serving.BindAddress.IsUnspecified() {
		ips = append(ips, o.Serving.BindAddress)
	}
	return ips, nil
}

// external returns the host and port of URLs for clients outside the cluster,
// such as the URL of the token keys.
func (o *Options) external() (string, error) {
	port := strconv.Itoa(o.Serving.Port)
	if o.Serving.ExternalHostname != "" {
		if _, _, err := net.SplitHostPort(o.Serving.ExternalHostname); err == nil {
			return o.Serving.ExternalHostname, nil
		}
		return net.JoinHostPort(o.Serving.ExternalHostname, port), nil
	}
	advertised, err := o.Advertised()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(advertised.String(), port), nil
}

// ErrNoAddress reports that the machine has no address to advertise.
var ErrNoAddress = errors.New("this machine has no network address but loopback: connect it, or choose the address to advertise (the API server's advertise-address)")

// Advertised returns the address at which members of the cluster reach the
// server. Without --advertise-address and --bind-address it is an address of the
// interface of the default route, or else any address of the machine.
func (o *Options) Advertised() (net.IP, error) {
	if o.Serving.AdvertiseAddress != nil && !o.Serving.AdvertiseAddress.IsUnspecified() {
		return o.Serving.AdvertiseAddress, nil
	}
	return o.Chosen()
}

// Chosen returns what Advertised returns without --advertise-address. Another call may
// return another address, when the machine has others.
func (o *Options) Chosen() (net.IP, error) {
	if ip, err := utilnet.ResolveBindAddress(o.Serving.BindAddress); err == nil {
		return ip, nil
	}
	// The machine has no default route.
	ip, err := anyAddress()
	if ip != nil || err != nil {
		return ip, err
	}
	if o.Serving.AdvertiseLoopback {
		return net.IPv4(127, 0, 0, 1), nil
	}
	return nil, ErrNoAddress
}

// anyAddress returns a global unicast address of this machine, or nil. It
// returns the address of a cluster's interface only if there is no other, because
// those are removed with their clusters.
func anyAddress() (net.IP, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, clusters := range []bool{false, true} {
		for _, i := range interfaces {
			if clusternames.IsClusters(i.Name) != clusters {
				continue
			}
			addresses, err := i.Addrs()
			if err != nil {
				continue // the interface was just removed
			}
			for _, a := range addresses {
				if ipNet, ok := a.(*net.IPNet); ok && ipNet.IP.IsGlobalUnicast() {
					return ipNet.IP, nil
				}
			}
		}
	}
	return nil, nil
}
