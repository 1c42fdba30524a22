package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/pki"
)

// trusted is a certificate authority of clients.
type trusted struct {
	verify x509request.VerifyOptionFunc
	pem    func() []byte
}

// trust returns the authority in a flag's file, which is reloaded when it
// changes. Without a file it returns own.
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
	config, err := a.options.Serving.TLS.config(certificate)
	if err != nil {
		return nil, err
	}
	httpserver.AdvertiseClientCAs(config, joined(a.identity.clientCA.pem, a.identity.frontProxyCA.pem))
	return config, nil
}

// servingCertificate returns the certificate for clients whose server name
// matches none of --tls-sni-cert-key.
func (a *Server) servingCertificate() (certificateFunc, error) {
	if a.options.Serving.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(a.options.Serving.TLS.CertFile, a.options.Serving.TLS.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
	}
	ips, err := a.options.addresses()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	certificate, err := a.keys.Issue(pki.APIServer("cluster.local", []string{host}, withFormer(ips, ServingAddresses(a.keys))))
	if err != nil {
		return nil, err
	}
	return certificate.GetCertificate, nil
}

// maxFormer bounds how many addresses that the server had before stay in its certificate.
const maxFormer = 8

// withFormer adds those of the addresses in the present certificate that the server no
// longer has, the latest ones first: clients may still reach it there, or it may have them
// again.
func withFormer(ips, present []net.IP) []net.IP {
	var former []net.IP
	for _, ip := range present {
		if !ip.IsLoopback() && !slices.ContainsFunc(ips, ip.Equal) && len(former) < maxFormer {
			former = append(former, ip)
		}
	}
	return slices.Concat(ips, former)
}

// ServingAddresses returns the addresses for which the certificate is valid that the API
// server with these keys has issued to itself: its own ones, and former ones. There are
// none before its first start.
func ServingAddresses(keys *pki.Directory) []net.IP {
	return certificateAddresses(keys.File("apiserver.crt"))
}

// certificateAddresses returns the addresses for which the certificate in a file is valid,
// none if there is no file.
func certificateAddresses(file string) []net.IP {
	certificates, err := certutil.CertsFromFile(file)
	if err != nil {
		return nil
	}
	return certificates[0].IPAddresses
}

// KeepKubeconfigs writes kubeconfigs for the admin and the other components to
// the directory of keys: admin.kubeconfig, controller-manager.kubeconfig,
// scheduler.kubeconfig, kube-proxy.kubeconfig, dns.kubeconfig, and
// kubelet.kubeconfig for the named node. It also writes the kubelet's serving
// certificate, kubelet-NODE.crt and .key. keys.Run renews the certificates in
// place, so call KeepKubeconfigs before it. With --tls-cert-file or
// --client-ca-file it writes nothing.
func (o *Options) KeepKubeconfigs(ctx context.Context, keys *pki.Directory, node string) error {
	if o.Serving.TLS.CertFile != "" || o.Authentication.ClientCAFile != "" {
		return nil
	}
	advertised, err := o.Advertised()
	if err != nil {
		return err
	}
	server := o.serverURL(advertised)
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
		}.WriteOnRenewal(keys.File(one.file+".kubeconfig"), func(err error) {
			klog.FromContext(ctx).Error(err, "Writing a component's kubeconfig failed", "component", one.file)
		})
		if err != nil {
			return err
		}
	}
	_, err = keys.Issue(KubeletServing(node, []net.IP{advertised}))
	return err
}

// Files of a node, in a directory of their own: the cluster's authority,
// kubeconfigs with certificate and key for the kubelet, the proxy, the DNS server,
// the provisioner of local volumes, what enforces network policies and, on the machine
// of the control plane itself, the ingress controller, and the kubelet's serving
// certificate. The kubeconfigs refer to files by relative paths.
const (
	NodeAuthority  = "ca.crt"
	NodeKubelet    = "kubelet.kubeconfig"
	NodeProxy      = "kube-proxy.kubeconfig"
	NodeDNS        = "dns.kubeconfig"
	NodeVolumes    = "local-volumes.kubeconfig"
	NodePolicies   = "network-policy.kubeconfig"
	NodeIngress    = "ingress.kubeconfig"
	NodeServing    = "kubelet-serving.crt"
	NodeServingKey = "kubelet-serving.key"
)

// KeepNode writes the files of the node that this machine is to dir. keys.Run
// renews them, so call KeepNode before it.
func (o *Options) KeepNode(keys *pki.Directory, dir, node string) error {
	advertised, err := o.Advertised()
	if err != nil {
		return err
	}
	// The loopback address is valid while other addresses change.
	identities := nodeIdentities(node)
	identities[NodeIngress] = pki.Ingress()
	return o.keepNode(keys, dir, node, identities, append([]net.IP{advertised}, keptAddresses(dir)...), net.IPv4(127, 0, 0, 1))
}

// nodeIdentities returns the identities of each node's components, by file.
func nodeIdentities(node string) map[string]pki.Profile {
	return map[string]pki.Profile{
		NodeProxy: pki.KubeProxy(), NodeDNS: pki.DNS(), NodeVolumes: pki.LocalVolumes(), NodePolicies: pki.NetworkPolicy(), NodeKubelet: pki.Node(node),
	}
}

// KeepFurtherNode is KeepNode for a further node of this machine with addresses
// of its own, which reaches the API server at Serving.NodesAddress.
func (o *Options) KeepFurtherNode(keys *pki.Directory, dir, node string, addresses []net.IP) error {
	return o.keepNode(keys, dir, node, nodeIdentities(node), addresses, o.Serving.NodesAddress)
}

// keepNode writes the files of a node with these identities and addresses, which reaches
// the API server at another address.
func (o *Options) keepNode(keys *pki.Directory, dir, node string, identities map[string]pki.Profile, addresses []net.IP, reached net.IP) error {
	if err := keys.Publish(filepath.Join(dir, NodeAuthority)); err != nil {
		return err
	}
	if o.Serving.TLS.CertFile != "" { // may be valid for the advertised address only
		var err error
		if reached, err = o.Advertised(); err != nil {
			return err
		}
	}
	server := o.serverURL(reached)
	if _, err := keys.Issue(KubeletServing(node, addresses).In(dir, strings.TrimSuffix(NodeServing, ".crt"))); err != nil {
		return err
	}
	for file, who := range identities {
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

// NodeAddress returns the address of this machine's node, whose files are in dir.
// It is the advertised address if the kubelet's certificate is valid for it, or
// else the first address of the certificate that this machine still has.
func (o *Options) NodeAddress(dir string) (net.IP, error) {
	advertised, err := o.Advertised()
	if err != nil {
		return nil, err
	}
	kept := keptAddresses(dir)
	if len(kept) == 0 || slices.ContainsFunc(kept, advertised.Equal) {
		return advertised, nil
	}
	return kept[0], nil
}

// KubeletAddresses returns the addresses for which the kubelet's certificate in dir is
// valid, none if it is not there yet.
func KubeletAddresses(dir string) []net.IP {
	return certificateAddresses(filepath.Join(dir, NodeServing))
}

// keptAddresses returns the addresses of the kubelet's certificate in dir that
// this machine still has. A running node may be registered with one of them.
func keptAddresses(dir string) []net.IP {
	return slices.DeleteFunc(KubeletAddresses(dir), func(ip net.IP) bool {
		a, _ := netip.AddrFromSlice(ip)
		return !a.IsGlobalUnicast() || !ofThisMachine(a.Unmap())
	})
}

// KubeletServing returns the profile of a kubelet's serving certificate.
func KubeletServing(node string, ips []net.IP) pki.Profile {
	return pki.Kubelet(node, nil, append(ips, net.IPv4(127, 0, 0, 1)))
}
