package pki

import (
	"crypto/x509"
	"net"
	"slices"
	"time"
)

// Profile says what a certificate is for.
type Profile struct {
	Name         string // file name without .crt and .key
	Dir          string // "" is the directory of the keys
	Authority    string // "" is ClusterAuthority
	CommonName   string
	Organization []string
	DNSNames     []string
	IPs          []net.IP
	Server       bool // for serving
	Client       bool // for presenting to a server
	Lifetime     time.Duration
}

// APIServer is the serving certificate of an API server of a cluster with the
// given DNS domain, reached under the names and addresses (the first address
// of the service network, the node's addresses) besides the usual ones.
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

// KubeletAPIAdmin is the group that may do everything with kubelets and, but
// for reading nodes, nothing else: it is bound to the cluster role of that name.
const KubeletAPIAdmin = "system:kubelet-api-admin"

// APIServerKubeletClient is what the API server shows to kubelets, and so to
// whatever a node says that its kubelet is.
func APIServerKubeletClient() Profile {
	return Profile{Name: "apiserver-kubelet-client", CommonName: "kube-apiserver-kubelet-client",
		Organization: []string{KubeletAPIAdmin}, Client: true}
}

// EtcdServer is what a member of etcd shows to clients that reach it at hosts.
func EtcdServer(member string, names []string, ips []net.IP) Profile {
	return Profile{Name: "etcd-server-" + member, Authority: EtcdAuthority, CommonName: member,
		DNSNames: distinct(append([]string{"localhost"}, names...)),
		IPs:      distinctIPs(append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ips...)), Server: true}
}

// EtcdPeer is what a member of etcd shows to the other members.
func EtcdPeer(member string, names []string, ips []net.IP) Profile {
	return Profile{Name: "etcd-peer-" + member, Authority: EtcdAuthority, CommonName: member,
		DNSNames: distinct(append([]string{"localhost"}, names...)),
		IPs:      distinctIPs(append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ips...)), Server: true, Client: true}
}

// EtcdClient is what clients show to etcd: whoever has it has all objects.
func EtcdClient() Profile {
	return Profile{Name: "etcd-client", Authority: EtcdAuthority, CommonName: "etcd-client", Client: true}
}

// FrontProxyClient is what the API server shows to aggregated API servers.
func FrontProxyClient() Profile {
	return Profile{Name: "front-proxy-client", Authority: FrontProxyAuthority, CommonName: "front-proxy-client", Client: true}
}

// Admin is the identity of the user who may do everything.
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

// Node is the identity of a node's kubelet.
func Node(name string) Profile {
	return User("kubelet-client-"+name, "system:node:"+name, "system:nodes")
}

// Component is what a component of that name serves its health and metrics
// with, on this machine.
func Component(name string) Profile {
	return Profile{Name: name + "-server", CommonName: name, DNSNames: []string{"localhost"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, Server: true}
}

// In returns the profile of a certificate that is kept in another directory,
// under another name.
func (p Profile) In(dir, name string) Profile {
	p.Dir, p.Name = dir, name
	return p
}

// User is a client certificate kept under the file name given.
func User(file, name string, groups ...string) Profile {
	return Profile{Name: file, CommonName: name, Organization: groups, Client: true}
}

// Kubelet is the serving certificate of a node's kubelet.
func Kubelet(node string, names []string, ips []net.IP) Profile {
	return Profile{Name: "kubelet-" + node, CommonName: "system:node:" + node, Organization: []string{"system:nodes"},
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

// describes says whether cert is what the profile asks for. A certificate may
// be good for more names than asked for.
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
