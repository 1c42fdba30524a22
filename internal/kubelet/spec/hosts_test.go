package spec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The hosts file of a pod on the host's network is the host's. The pod's aliases are added
// to either.
func TestHostsFile(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"},
		Spec: v1.PodSpec{Subdomain: "web", HostNetwork: true, HostAliases: []v1.HostAlias{
			{IP: "192.0.2.7", Hostnames: []string{"foo.local", "bar.local"}}, {IP: "192.0.2.8", Hostnames: []string{"baz.local"}},
		}},
	}
	const aliases = "\n# Entries added by HostAliases.\n192.0.2.7\tfoo.local\tbar.local\n192.0.2.8\tbaz.local\n"
	check := func(want string) {
		t.Helper()
		got, err := HostsFile(pod, []string{"10.1.0.7", "fd00::7"}, "cluster.local", []byte("127.0.0.1 localhost alpha\n"))
		if err != nil || string(got) != want {
			t.Errorf("got %q %v, want %q", got, err, want)
		}
	}
	check("# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost alpha\n" + aliases)
	pod.Spec.HostNetwork = false
	check("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n" +
		"10.1.0.7\tweb-0.web.shop.svc.cluster.local\tweb-0\nfd00::7\tweb-0.web.shop.svc.cluster.local\tweb-0\n" + aliases)
}

// A pod has a line for each of its addresses, with its domain if it has one.
func TestHostsFileOfNames(t *testing.T) {
	for _, test := range []struct {
		spec v1.PodSpec
		ips  []string
		want string // after the lines that all pods have
	}{
		{v1.PodSpec{}, []string{"10.1.0.7"}, "10.1.0.7\tweb-0\n"},
		{v1.PodSpec{}, []string{"10.1.0.7", "fd00::7"}, "10.1.0.7\tweb-0\nfd00::7\tweb-0\n"},
		{v1.PodSpec{Hostname: "a", Subdomain: "b"}, []string{"10.1.0.7"}, "10.1.0.7\ta.b.shop.svc.cluster.local\ta\n"},
		{v1.PodSpec{Hostname: "a", Subdomain: "b", SetHostnameAsFQDN: new(true)}, []string{"10.1.0.7"}, "10.1.0.7\ta.b.shop.svc.cluster.local\ta\n"},
		{v1.PodSpec{Hostname: "a", Subdomain: "b", HostnameOverride: new("c.example.com")}, []string{"10.1.0.7"}, "10.1.0.7\tc.example.com\n"},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}, Spec: test.spec}
		got, err := HostsFile(pod, test.ips, "cluster.local", []byte("127.0.0.1 localhost alpha\n"))
		if _, names, ok := strings.Cut(string(got), "ip6-allrouters\n"); err != nil || !ok || names != test.want {
			t.Errorf("%q (%v), want the end %q", got, err, test.want)
		}
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: v1.PodSpec{HostNetwork: true}}
	if got, err := HostsFile(pod, nil, "cluster.local", []byte("127.0.0.1 alpha\n")); err != nil || string(got) != "# Kubernetes-managed hosts file (host network).\n127.0.0.1 alpha\n" {
		t.Errorf("on the host's network: %q, %v", got, err)
	}
}
