package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/pki"
	definition "github.com/coracle-io/coracle/internal/resource/certificates"
)

// refuseServing returns why a node's request of a serving certificate is not
// approved without a person, or "".
func refuseServing(ctx context.Context, kube kubernetes.Interface, csr *certificatesv1.CertificateSigningRequest) (string, error) {
	r, err := definition.ParseRequest(csr.Spec.Request)
	if err != nil {
		return "", err
	}
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	servers, err := apiServers(ctx, kube)
	if err != nil {
		return "", err
	}
	return refuseNames(r, strings.TrimPrefix(csr.Spec.Username, pki.NodePrefix), nodes.Items, servers), nil
}

// identityLeases selects the Leases of API servers (KEP-1965), with the hosts that
// they run on.
const identityLeases = "apiserver.kubernetes.io/identity=kube-apiserver"

// apiServers returns the names and addresses of API servers: those behind the
// Service default/kubernetes, its own, the hosts that they run on, which are in
// their certificates, and the host in cluster-info.
func apiServers(ctx context.Context, kube kubernetes.Interface) ([]string, error) {
	service, err := kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	servers := slices.Clone(service.Spec.ClusterIPs)
	all, err := kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return nil, err
	}
	for _, slice := range all.Items {
		for _, e := range slice.Endpoints {
			servers = append(servers, e.Addresses...)
		}
	}
	leases, err := kube.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: identityLeases})
	if err != nil {
		return nil, err
	}
	for i := range leases.Items {
		servers = append(servers, strings.ToLower(leases.Items[i].Labels[corev1.LabelHostname]))
	}
	info, err := kube.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstraptoken.ClusterInfo, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return servers, nil
	}
	if err != nil {
		return nil, err
	}
	if config, err := clientcmd.Load([]byte(info.Data[bootstraptoken.ClusterInfoKey])); err == nil {
		for _, c := range config.Clusters {
			if at, err := url.Parse(c.Server); err == nil {
				servers = append(servers, at.Hostname())
			}
		}
	}
	return servers, nil
}

// refuseNames returns why a node must not serve under the names in a request, or "".
// The authority of the cluster is that of its API servers, so that a certificate
// under the name of one of them, or of another node, would be taken for theirs.
// What a node reports about itself is mistrusted. Its object shows that its name is
// one of a host: that of an identity alone may be a pattern, such as *.default.svc.
func refuseNames(r *x509.CertificateRequest, node string, nodes []corev1.Node, servers []string) string {
	for _, name := range r.DNSNames {
		if name != node || name == "localhost" || ofService(name) || slices.Contains(servers, name) {
			return fmt.Sprintf("%s is not the name of the node alone", name)
		}
	}
	if !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == node }) {
		return fmt.Sprintf("there is no node %s", node)
	}
	for _, ip := range r.IPAddresses {
		address, _ := netip.AddrFromSlice(ip)
		address = address.Unmap()
		switch holders := holdersOf(address, nodes); {
		case !address.IsGlobalUnicast():
			return fmt.Sprintf("%s is not the address of a machine", address)
		case slices.ContainsFunc(servers, func(s string) bool { return isAddress(s, address) }):
			return fmt.Sprintf("%s is the address of an API server", address)
		case !slices.Contains(holders, node):
			return fmt.Sprintf("node %s does not report the address %s", node, address)
		case len(holders) > 1:
			return fmt.Sprintf("other nodes report the address %s, too: %s", address, strings.Join(holders, ", "))
		}
	}
	return ""
}

// ofService reports whether a name may be that of a Service: the certificates of API
// servers have such as begin with kubernetes, and those of webhooks NAME.NAMESPACE.svc.
func ofService(name string) bool {
	return name == "kubernetes" || strings.HasPrefix(name, "kubernetes.") || strings.HasSuffix(name, ".svc") || strings.Contains(name, ".svc.")
}

// holdersOf returns the names of the nodes that report an address.
func holdersOf(address netip.Addr, nodes []corev1.Node) (names []string) {
	for i := range nodes {
		if slices.ContainsFunc(nodes[i].Status.Addresses, func(a corev1.NodeAddress) bool { return isAddress(a.Address, address) }) {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}

// isAddress reports whether text is an address.
func isAddress(text string, address netip.Addr) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Unmap() == address
}
