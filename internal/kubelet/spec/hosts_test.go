package spec

import (
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
