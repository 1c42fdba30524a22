package certificates

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// nodeAt returns a node that reports addresses.
func nodeAt(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// A node gets no certificate under the name or address of anything but itself,
// whatever it reports.
func TestRefuseNames(t *testing.T) {
	nodes := []corev1.Node{*nodeAt("n1", "192.0.2.1", "192.0.2.2", "10.96.0.1", "192.0.2.10", "127.0.0.1", "2001:db8::1"), *nodeAt("n2", "192.0.2.2"), *nodeAt("hook.ns.svc")}
	servers := []string{"10.96.0.1", "192.0.2.10", "api.example"}
	for name, c := range map[string]struct {
		node  string
		names []string
		ips   []string
		want  string
	}{
		"its own":               {"n1", []string{"n1"}, []string{"192.0.2.1", "2001:db8::1"}, ""},
		"its address alone":     {"n1", nil, []string{"192.0.2.1"}, ""},
		"another node's name":   {"n1", []string{"n1", "n2"}, []string{"192.0.2.1"}, "n2 is not the name of the node alone"},
		"localhost":             {"localhost", []string{"localhost"}, nil, "localhost is not the name of the node alone"},
		"the Service":           {"kubernetes.default", []string{"kubernetes.default"}, nil, "kubernetes.default is not the name of the node alone"},
		"a webhook":             {"hook.ns.svc", []string{"hook.ns.svc"}, nil, "hook.ns.svc is not the name of the node alone"},
		"a pattern":             {"*", []string{"*"}, nil, "there is no node *"},
		"a pattern of Services": {"*.default.svc", []string{"*.default.svc"}, nil, "*.default.svc is not the name of the node alone"},
		"the API server":        {"api.example", []string{"api.example"}, nil, "api.example is not the name of the node alone"},
		"its address":           {"n1", nil, []string{"192.0.2.10"}, "192.0.2.10 is the address of an API server"},
		"that of the Service":   {"n1", nil, []string{"10.96.0.1"}, "10.96.0.1 is the address of an API server"},
		"loopback":              {"n1", nil, []string{"127.0.0.1"}, "127.0.0.1 is not the address of a machine"},
		"of two nodes":          {"n1", nil, []string{"192.0.2.2"}, "other nodes report the address 192.0.2.2, too: n1, n2"},
		"not its own":           {"n2", nil, []string{"192.0.2.1"}, "node n2 does not report the address 192.0.2.1"},
		"a node without object": {"n3", []string{"n3"}, []string{"192.0.2.3"}, "there is no node n3"},
	} {
		r := &x509.CertificateRequest{DNSNames: c.names}
		for _, ip := range c.ips {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
		}
		if got := refuseNames(r, c.node, nodes, servers); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The request of a node for its own addresses is approved if nodes may have that,
// and one for the address or the host of the API server is left to a person.
func TestServingCertificatesAreApproved(t *testing.T) {
	subject := pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}}}
	endpoints := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{"kubernetes.io/service-name": "kubernetes"}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.10"}}},
	}
	for _, test := range []struct {
		user, address, host string // host is that of the API server
		allowed, approved   bool
	}{
		{"system:node:n1", "192.0.2.1", "control", true, true}, {"system:node:n1", "192.0.2.1", "control", false, false}, {"system:node:n1", "192.0.2.10", "control", true, false},
		{"system:node:n2", "192.0.2.1", "control", true, false}, {"system:node:n1", "192.0.2.1", "N1", true, false},
	} {
		template := x509.CertificateRequest{Subject: subject, DNSNames: []string{"n1"}, IPAddresses: []net.IP{net.ParseIP(test.address)}}
		csr := request(t, certificatesv1.KubeletServingSignerName, test.user, template, signature, serverAuth)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "apiserver-x", Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": test.host},
		}}
		c := controllertest.New(t, csr, nodeAt("n1", "192.0.2.1", "192.0.2.10"), service.DeepCopy(), endpoints.DeepCopy(), lease)
		c.Fake.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
			review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
			review.Status.Allowed = test.allowed && review.Spec.ResourceAttributes.Subresource == "selfnodeserver"
			return true, review, nil
		})
		if err := approve(t.Context(), c.Env, csr); err != nil {
			t.Errorf("%+v: %v", test, err)
		}
		approvals := 0
		for _, a := range c.Fake.Actions() {
			if a.Matches("update", "certificatesigningrequests") && a.GetSubresource() == "approval" {
				approvals++
			}
		}
		if (approvals == 1) != test.approved {
			t.Errorf("%+v: %d approvals", test, approvals)
		}
	}
}
