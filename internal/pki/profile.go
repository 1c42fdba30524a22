package pki

import (
	"crypto/x509"
	"net"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Profile describes the holder and the use of a certificate.
type Profile struct {
	Name         string // the file's name without .crt and .key
	Dir          string // "" is the path of the Directory
	Authority    string // "" is ClusterAuthority
	CommonName   string
	Organization []string
	DNSNames     []string
	IPs          []net.IP
	Server       bool          // whether a server may present it
	Client       bool          // whether a client may present it
	Lifetime     time.Duration // 0 is a year
}

// APIServer is the serving certificate of an API server in a cluster with the
// given DNS domain. names and ips are its names and addresses besides the usual
// ones, such as the first address of the service network and the node's.
func APIServer(domain string, names []string, ips []net.IP) Profile {
	return Profile{
		Name:       "apiserver",
		CommonName: "kube-apiserver",
		DNSNames: distinct(append([]string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain, "localhost",
		}, names...)),
		IPs:    distinctIPs(append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ips...)),
		Server: true,
	}
}

// kubeletAPIAdmin is the group that may use all of the kubelets' API, and read
// nodes. It is bound to the cluster role of the same name.
const kubeletAPIAdmin = "system:kubelet-api-admin"

// APIServerKubeletClient is the client certificate of the API server to
// kubelets. It has few privileges, since the API server presents it to any
// address that a node reports as its kubelet's.
func APIServerKubeletClient() Profile {
	return Profile{Name: "apiserver-kubelet-client", CommonName: "kube-apiserver-kubelet-client",
		Organization: []string{kubeletAPIAdmin}, Client: true}
}

// EtcdServer is the serving certificate of a member of etcd to clients.
func EtcdServer(member string, names []string, ips []net.IP) Profile {
	return Profile{Name: "etcd-server-" + member, Authority: EtcdAuthority, CommonName: member,
		DNSNames: distinct(append([]string{"localhost"}, names...)),
		IPs:      distinctIPs(append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ips...)), Server: true}
}

// EtcdPeer is the certificate of a member of etcd to the other members.
func EtcdPeer(member string, names []string, ips []net.IP) Profile {
	return Profile{Name: "etcd-peer-" + member, Authority: EtcdAuthority, CommonName: member,
		DNSNames: distinct(append([]string{"localhost"}, names...)),
		IPs:      distinctIPs(append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ips...)), Server: true, Client: true}
}

// EtcdClient is the client certificate to etcd. Its holder may read and write
// all objects.
func EtcdClient() Profile {
	return Profile{Name: "etcd-client", Authority: EtcdAuthority, CommonName: "etcd-client", Client: true}
}

// FrontProxyClient is the client certificate of the API server to aggregated
// API servers.
func FrontProxyClient() Profile {
	return Profile{Name: "front-proxy-client", Authority: FrontProxyAuthority, CommonName: "front-proxy-client", Client: true}
}

// Admin is the identity of the administrator, who may do everything.
func Admin() Profile { return User("admin", "kubernetes-admin", "system:masters") }

// ControllerManager is the identity of the controller manager.
func ControllerManager() Profile {
	return User("controller-manager", "system:kube-controller-manager")
}

// Scheduler is the identity of the scheduler.
func Scheduler() Profile { return User("scheduler", "system:kube-scheduler") }

// KubeProxy is the identity of the service proxy.
func KubeProxy() Profile { return User("kube-proxy", "system:kube-proxy") }

// DNS is the identity of the cluster's DNS server.
func DNS() Profile { return User("dns", "system:coredns") }

// LocalVolumes is the identity of the provisioner of local volumes.
func LocalVolumes() Profile { return User("local-volumes", "system:coracle:local-volumes") }

// Ingress is the identity of the ingress controller.
func Ingress() Profile { return User("ingress", "system:coracle:ingress") }

// NetworkPolicy is the identity of what enforces network policies.
func NetworkPolicy() Profile { return User("network-policy", "system:coracle:network-policy") }

// NodePrefix begins the user names of nodes' kubelets, which are in the group
// user.NodesGroup.
const NodePrefix = "system:node:"

// Node is the identity of a node's kubelet.
func Node(name string) Profile {
	return User("kubelet-client-"+name, NodePrefix+name, user.NodesGroup)
}

// Component is the certificate with which a component serves health checks and
// metrics on this machine.
func Component(name string) Profile {
	return Profile{Name: name + "-server", CommonName: name, DNSNames: []string{"localhost"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, Server: true}
}

// In returns the profile with another directory and file name.
func (p Profile) In(dir, name string) Profile {
	p.Dir, p.Name = dir, name
	return p
}

// User is the client certificate of a user with the given groups, in files of
// the given name.
func User(file, name string, groups ...string) Profile {
	return Profile{Name: file, CommonName: name, Organization: groups, Client: true}
}

// Kubelet is the serving certificate of a node's kubelet.
func Kubelet(node string, names []string, ips []net.IP) Profile {
	return Profile{Name: "kubelet-" + node, CommonName: NodePrefix + node, Organization: []string{user.NodesGroup},
		DNSNames: distinct(append([]string{node}, names...)), IPs: distinctIPs(ips), Server: true}
}

func (p Profile) lifetime() time.Duration {
	if p.Lifetime > 0 {
		return p.Lifetime
	}
	return leafLifetime
}

func (p Profile) usages() []x509.ExtKeyUsage {
	var u []x509.ExtKeyUsage
	if p.Server {
		u = append(u, x509.ExtKeyUsageServerAuth)
	}
	if p.Client {
		u = append(u, x509.ExtKeyUsageClientAuth)
	}
	return u
}

// describes reports whether cert matches the profile. It may have more names
// than the profile.
func (p Profile) describes(cert *x509.Certificate) bool {
	if cert.Subject.CommonName != p.CommonName || !slices.Equal(cert.Subject.Organization, p.Organization) {
		return false
	}
	for _, u := range p.usages() {
		if !slices.Contains(cert.ExtKeyUsage, u) {
			return false
		}
	}
	for _, name := range p.DNSNames {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range p.IPs {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

func distinct(names []string) []string {
	var out []string
	for _, n := range names {
		if n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func distinctIPs(ips []net.IP) []net.IP {
	var out []net.IP
	for _, ip := range ips {
		if ip != nil && !slices.ContainsFunc(out, ip.Equal) {
			out = append(out, ip)
		}
	}
	return out
}
