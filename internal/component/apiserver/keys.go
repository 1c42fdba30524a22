package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/podnet"
)

// trusted is an authority of clients.
type trusted struct {
	verify x509request.VerifyOptionFunc
	pem    func() []byte
}

// trust reads the authority of a flag's file, which is read again when it
// changes. Without a file it is one of the cluster's own.
func (a *Server) trust(flag, file string, own *pki.Authority) (trusted, error) {
	if file == "" {
		return trusted{verify: own.VerifyOptions, pem: own.PEM}, nil
	}
	content, err := dynamiccertificates.NewDynamicCAContentFromFile(flag, file)
	if err != nil {
		return trusted{}, fmt.Errorf("--%s: %w", flag, err)
	}
	a.follow = append(a.follow, followed{flag, func(ctx context.Context) error {
		content.Run(ctx, 1)
		return nil
	}})
	return trusted{verify: content.VerifyOptions, pem: content.CurrentCABundleContent}, nil
}

func (a *Server) servingConfig() (*tls.Config, error) {
	certificate, err := a.servingCertificate()
	if err != nil {
		return nil, err
	}
	config, err := a.flags.TLS.config(certificate)
	if err != nil {
		return nil, err
	}
	httpserver.Announce(config, joined(a.identity.clientCA.pem, a.identity.frontProxyCA.pem))
	return config, nil
}

// servingCertificate is what clients are shown unless they ask for a name of
// --tls-sni-cert-key.
func (a *Server) servingCertificate() (certificateFunc, error) {
	if a.flags.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(a.flags.TLSCertFile, a.flags.TLSKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
	}
	ips, err := a.flags.addresses()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	certificate, err := a.keys.Issue(pki.APIServer("cluster.local", []string{host}, ips))
	if err != nil {
		return nil, err
	}
	return certificate.GetCertificate, nil
}

// KeepKubeconfigs writes, below the directory of the keys, how the admin and
// the other components reach this server: admin.kubeconfig,
// controller-manager.kubeconfig, scheduler.kubeconfig, kube-proxy.kubeconfig,
// dns.kubeconfig, and kubelet.kubeconfig for the node of that name. Beside
// the last is kubelet-NODE.crt and .key for the kubelet to serve with. What
// the files point to is renewed in place. Call it before keys.Run. With
// certificates of others there is nothing to write.
func (f *Flags) KeepKubeconfigs(ctx context.Context, keys *pki.Directory, node string) error {
	if f.TLSCertFile != "" || f.ClientCAFile != "" {
		return nil
	}
	advertised, err := f.Advertised()
	if err != nil {
		return err
	}
	server := f.serverURL(advertised)
	for _, one := range []struct {
		file string
		who  pki.Profile
	}{
		{"admin", pki.Admin()},
		{"controller-manager", pki.ControllerManager()},
		{"scheduler", pki.Scheduler()},
		{"kube-proxy", pki.KubeProxy()},
		{"dns", pki.DNS()},
		{"kubelet", pki.Node(node)},
	} {
		identity, err := keys.Issue(one.who)
		if err != nil {
			return err
		}
		err = pki.Kubeconfig{
			Cluster: "coracle", Server: server, User: one.who.CommonName, Authority: keys.Cluster(), Identity: identity,
		}.Keep(keys.File(one.file+".kubeconfig"), func(err error) {
			klog.FromContext(ctx).Error(err, "Writing a component's kubeconfig failed", "component", one.file)
		})
		if err != nil {
			return err
		}
	}
	_, err = keys.Issue(KubeletServing(node, []net.IP{advertised}))
	return err
}

// NodeFiles are the files by which a node reaches its cluster, in a directory
// that holds nothing else, with paths relative to it: ca.crt, a kubeconfig with
// certificate and key for the kubelet, the proxy and the DNS server, and what
// the kubelet serves with.
const (
	NodeAuthority  = "ca.crt"
	NodeKubelet    = "kubelet.kubeconfig"
	NodeProxy      = "kube-proxy.kubeconfig"
	NodeDNS        = "dns.kubeconfig"
	NodeServing    = "kubelet-serving.crt"
	NodeServingKey = "kubelet-serving.key"
)

// KeepNode writes the files of a node to dir, and keeps them valid while
// keys.Run runs. Call it before that.
func (f *Flags) KeepNode(keys *pki.Directory, dir, node string) error {
	advertised, err := f.Advertised()
	if err != nil {
		return err
	}
	if err := keys.Publish(filepath.Join(dir, NodeAuthority)); err != nil {
		return err
	}
	server := f.serverURL(net.IPv4(127, 0, 0, 1)) // whatever other addresses come and go
	if f.TLSCertFile != "" {                      // which may be for no other address
		server = f.serverURL(advertised)
	}
	addresses := append([]net.IP{advertised}, keptAddresses(dir)...)
	if _, err := keys.Issue(KubeletServing(node, addresses).In(dir, strings.TrimSuffix(NodeServing, ".crt"))); err != nil {
		return err
	}
	for file, who := range map[string]pki.Profile{NodeProxy: pki.KubeProxy(), NodeDNS: pki.DNS(), NodeKubelet: pki.Node(node)} {
		identity, err := keys.Issue(who.In(dir, strings.TrimSuffix(file, ".kubeconfig")))
		if err != nil {
			return err
		}
		if err := (pki.Kubeconfig{
			Cluster: "coracle", Server: server, User: who.CommonName,
			Authority: keys.Cluster(), Identity: identity, AuthorityFile: NodeAuthority,
		}).Write(filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return nil
}

// NodeAddress is the address of this machine's node, whose files are in dir. It is
// the advertised one, unless another interface has come since the control plane
// was started: then it is the one that the kubelet's certificate is for.
func (f *Flags) NodeAddress(dir string) (net.IP, error) {
	advertised, err := f.Advertised()
	if err != nil {
		return nil, err
	}
	kept := keptAddresses(dir)
	if len(kept) == 0 || slices.ContainsFunc(kept, advertised.Equal) {
		return advertised, nil
	}
	return kept[0], nil
}

// keptAddresses are those that the kubelet's certificate in dir is for, as far as
// this machine has them still: a node that runs may be known by one of them.
func keptAddresses(dir string) []net.IP {
	certificates, err := certutil.CertsFromFile(filepath.Join(dir, NodeServing))
	if err != nil {
		return nil // there is none yet
	}
	return slices.DeleteFunc(certificates[0].IPAddresses, func(ip net.IP) bool {
		a, _ := netip.AddrFromSlice(ip)
		return !a.IsGlobalUnicast() || !ofThisMachine(a.Unmap())
	})
}

// serverURL is where members of the cluster on this machine reach the server: at
// the one address that it listens at, or else at the given one.
func (f *Flags) serverURL(address net.IP) string {
	if f.BindAddress != nil && !f.BindAddress.IsUnspecified() {
		address = f.BindAddress
	}
	return "https://" + net.JoinHostPort(address.String(), strconv.Itoa(f.SecurePort))
}

// KubeletServing is the certificate that a node's kubelet serves with.
func KubeletServing(node string, ips []net.IP) pki.Profile {
	return pki.Kubelet(node, nil, append(ips, net.IPv4(127, 0, 0, 1)))
}

// addresses are those under which the server is reached: the first of each
// Service range, the advertised one, and the one that it listens at if that is
// only one.
func (f *Flags) addresses() ([]net.IP, error) {
	ranges, err := f.ServiceRanges()
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
	advertised, err := f.Advertised()
	if err != nil {
		return nil, err
	}
	ips = append(ips, advertised)
	if !f.BindAddress.IsUnspecified() {
		ips = append(ips, f.BindAddress)
	}
	return ips, nil
}

// external is the host and port in URLs that are meant for others, as that of
// the token keys.
func (f *Flags) external() (string, error) {
	port := strconv.Itoa(f.SecurePort)
	if f.ExternalHostname != "" {
		if _, _, err := net.SplitHostPort(f.ExternalHostname); err == nil {
			return f.ExternalHostname, nil
		}
		return net.JoinHostPort(f.ExternalHostname, port), nil
	}
	advertised, err := f.Advertised()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(advertised.String(), port), nil
}

// ErrNoAddress says that the members of the cluster could not reach this server.
var ErrNoAddress = errors.New("this machine has no network address but loopback: connect it, or give an address with --advertise-address (of coracle up: --apiserver-arg=advertise-address=ADDRESS)")

// Advertised is the address under which the cluster's members reach this server.
func (f *Flags) Advertised() (net.IP, error) {
	if f.AdvertiseAddress != nil && !f.AdvertiseAddress.IsUnspecified() {
		return f.AdvertiseAddress, nil
	}
	if ip, err := utilnet.ResolveBindAddress(f.BindAddress); err == nil {
		return ip, nil
	}
	// a machine without a default route
	ip, err := anyAddress()
	if ip != nil || err != nil {
		return ip, err
	}
	if f.AdvertiseLoopback {
		return net.IPv4(127, 0, 0, 1), nil
	}
	return nil, ErrNoAddress
}

// anyAddress is an address of this machine that is not loopback, or nil. That of
// a cluster's bridge is the last choice: it goes with the cluster.
func anyAddress() (net.IP, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, bridges := range []bool{false, true} {
		for _, i := range interfaces {
			if podnet.IsBridge(i.Name) != bridges {
				continue
			}
			addresses, err := i.Addrs()
			if err != nil {
				continue // it has just gone
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
