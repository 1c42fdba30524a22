package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/pki"
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
	if _, err := keys.Issue(KubeletServing(node, []net.IP{advertised}).In(dir, strings.TrimSuffix(NodeServing, ".crt"))); err != nil {
		return err
	}
	for file, who := range map[string]pki.Profile{NodeProxy: pki.KubeProxy(), NodeDNS: pki.DNS(), NodeKubelet: pki.Node(node)} {
		identity, err := keys.Issue(who.In(dir, strings.TrimSuffix(file, ".kubeconfig")))
		if err != nil {
			return err
		}
		if err := (pki.Kubeconfig{
			Cluster: "coracle", Server: f.serverURL(advertised), User: who.CommonName,
			Authority: keys.Cluster(), Identity: identity, AuthorityFile: NodeAuthority,
		}).Write(filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return nil
}

// ErrOtherAddress says that a node's files lead to an address that the machine
// had before; the API server writes them anew when it starts.
var ErrOtherAddress = errors.New("the node's files are for another address of this machine")

// CheckNode reports that the files of a node in dir, as KeepNode writes them, do
// not lead to this server's address, or that it has none.
func (f *Flags) CheckNode(dir string) error {
	advertised, err := f.Advertised()
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(filepath.Join(dir, NodeKubelet))
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		if want := f.serverURL(advertised); cluster.Server != want {
			return fmt.Errorf("%w (%s, now %s)", ErrOtherAddress, cluster.Server, want)
		}
	}
	return nil
}

// serverURL is where members of the cluster on this machine reach the server.
func (f *Flags) serverURL(advertised net.IP) string {
	address := f.BindAddress
	if address == nil || address.IsUnspecified() {
		address = advertised
	}
	return "https://" + net.JoinHostPort(address.String(), strconv.Itoa(f.SecurePort))
}

// KubeletServing is the certificate that a node's kubelet serves with.
func KubeletServing(node string, ips []net.IP) pki.Profile {
	return pki.Kubelet(node, nil, append(ips, net.IPv4(127, 0, 0, 1)))
}

// addresses are those under which the server is reached: the first of each
// Service range and the advertised one.
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
	return append(ips, advertised), nil
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
	// a machine without a default route: any address that is not loopback
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if ipNet, ok := a.(*net.IPNet); ok && ipNet.IP.IsGlobalUnicast() {
			return ipNet.IP, nil
		}
	}
	if f.AdvertiseLoopback {
		return net.IPv4(127, 0, 0, 1), nil
	}
	return nil, ErrNoAddress
}
