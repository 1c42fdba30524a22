package nodejoin

import (
	"net"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
)

// apiServers returns an EndpointSlice of the Service default/kubernetes.
func apiServers(addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default", Labels: map[string]string{"kubernetes.io/service-name": "kubernetes"}},
		Ports:      []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func clusterInfo(t *testing.T, client kubernetes.Interface) *v1.ConfigMap {
	t.Helper()
	info, err := client.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// cluster-info names the API server that the administrator chose, or that it named
// before, or one of the addresses of the Service kubernetes, and the authority.
func TestClusterInfo(t *testing.T) {
	client := fake.NewClientset(apiServers("192.0.2.2", "192.0.2.1"))
	for _, step := range []struct{ server, authority, want string }{
		{"", "one", "https://192.0.2.1:6443"},
		{"https://api.example:443", "one", "https://api.example:443"},
		{"", "two", "https://api.example:443"},
	} {
		c := &Cluster{Server: step.server, Authority: []byte(step.authority)}
		if err := c.Prepare(t.Context(), client); err != nil || c.Server != step.want {
			t.Fatalf("%+v: server %s, %v", step, c.Server, err)
		}
		config, err := clientcmd.Load([]byte(clusterInfo(t, client).Data["kubeconfig"]))
		if err != nil {
			t.Fatal(err)
		}
		if entry := config.Clusters[""]; len(config.Clusters) != 1 || entry == nil || entry.Server != step.want || string(entry.CertificateAuthorityData) != step.authority ||
			len(config.AuthInfos) > 0 || len(config.Contexts) > 0 {
			t.Errorf("%+v: cluster-info is %+v", step, config)
		}
	}
}

// What is as it should be is not written again, and signatures stay.
func TestPrepareAgain(t *testing.T) {
	client := fake.NewClientset(apiServers("2001:db8::1"))
	c := &Cluster{Authority: []byte("one")}
	if err := c.Prepare(t.Context(), client); err != nil || c.Server != "https://[2001:db8::1]:6443" {
		t.Fatalf("server %s, %v", c.Server, err)
	}
	signed := clusterInfo(t, client)
	signed.Data["jws-kubeconfig-abcdef"] = "signature"
	if _, err := client.CoreV1().ConfigMaps("kube-public").Update(t.Context(), signed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding, err := client.RbacV1().ClusterRoleBindings().Get(t.Context(), "kubeadm:kubelet-bootstrap", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding.Subjects = nil // the administrator wants approval by hand
	if _, err := client.RbacV1().ClusterRoleBindings().Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	client.ClearActions()
	if err := (&Cluster{Authority: []byte("one")}).Prepare(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() == "update" {
			t.Errorf("%s of %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
	if clusterInfo(t, client).Data["jws-kubeconfig-abcdef"] != "signature" {
		t.Error("the signature is gone")
	}
}

// TestClusterInfoFollowsTheServer checks that cluster-info gets the URL and the authority of
// an API server that has others, and keeps those that somebody gave or changed, and those of
// other servers.
func TestClusterInfoFollowsTheServer(t *testing.T) {
	const before, after = "https://192.0.2.1:6443", "https://198.51.100.7:6443"
	own := []net.IP{net.ParseIP("10.96.0.1"), net.ParseIP("192.0.2.1"), net.ParseIP("198.51.100.7")}
	edit := func(change func(*clientcmdapi.Cluster)) func(*v1.ConfigMap) {
		return func(info *v1.ConfigMap) {
			config := configIn(info)
			change(config.Clusters[""])
			content, err := clientcmd.Write(*config)
			if err != nil {
				t.Fatal(err)
			}
			info.Data["kubeconfig"] = string(content)
		}
	}
	earlier := func(info *v1.ConfigMap) { info.Annotations = nil } // as earlier versions have written it
	for name, c := range map[string]struct {
		given     string              // to Prepare
		edit      func(*v1.ConfigMap) // of what Prepare has written
		server    string              // the API server's URL now
		authority string              // and its authority
		want      string              // the URL then
		wantCA    string
	}{
		"another address":                 {server: after, authority: "two", want: after, wantCA: "two"},
		"another port":                    {server: "https://192.0.2.1:7443", authority: "one", want: "https://192.0.2.1:7443", wantCA: "one"},
		"another authority":               {server: before, authority: "two", want: before, wantCA: "two"},
		"one authority of several":        {edit: edit(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = []byte("zero\none\n") }), server: after, authority: "one\n", want: after, wantCA: "zero\none\n"},
		"an authority that is not known":  {server: after, want: after, wantCA: "one"},
		"a given name":                    {given: "https://api.example:443", server: after, authority: "two", want: "https://api.example:443", wantCA: "one"},
		"a given address":                 {given: before, server: after, authority: "two", want: before, wantCA: "one"},
		"a changed address":               {edit: edit(func(c *clientcmdapi.Cluster) { c.Server = "https://192.0.2.1:443" }), server: after, authority: "two", want: "https://192.0.2.1:443", wantCA: "one"},
		"of an earlier version":           {edit: earlier, server: after, authority: "two", want: after, wantCA: "two"},
		"a port given to an earlier one":  {given: "https://192.0.2.1:443", edit: earlier, server: after, authority: "two", want: "https://192.0.2.1:443", wantCA: "one"},
		"another server, earlier version": {given: "https://192.0.2.9:6443", edit: earlier, server: after, authority: "two", want: "https://192.0.2.9:6443", wantCA: "one"},
		"on loopback":                     {given: "https://127.0.0.1:6443", edit: earlier, server: after, authority: "two", want: "https://127.0.0.1:6443", wantCA: "one"},
	} {
		client := fake.NewClientset(apiServers("192.0.2.1"))
		if err := (&Cluster{Server: c.given, Authority: []byte("one")}).Prepare(t.Context(), client); err != nil {
			t.Fatal(name, err)
		}
		info := clusterInfo(t, client)
		edit(func(c *clientcmdapi.Cluster) { c.TLSServerName = "kubernetes" })(info)
		info.Data["note"], info.Labels = "the administrator's", map[string]string{"own": "label"}
		if c.edit != nil {
			c.edit(info)
		}
		if _, err := client.CoreV1().ConfigMaps("kube-public").Update(t.Context(), info, metav1.UpdateOptions{}); err != nil {
			t.Fatal(name, err)
		}
		for range 2 { // at one start and the next
			client.ClearActions()
			server := &Cluster{Server: c.server, Authority: []byte(c.authority)}
			if err := server.Refresh(t.Context(), client, append(own, net.ParseIP("127.0.0.1"))); err != nil {
				t.Fatal(name, err)
			}
		}
		for _, action := range client.Actions() {
			if action.GetVerb() == "update" {
				t.Errorf("%s: what is as it should be is written again", name)
			}
		}
		got := clusterInfo(t, client)
		if entry := configIn(got).Clusters[""]; entry.Server != c.want || string(entry.CertificateAuthorityData) != c.wantCA || entry.TLSServerName != "kubernetes" {
			t.Errorf("%s: cluster-info has %s, %q and %q, want %s and %q", name, entry.Server, entry.CertificateAuthorityData, entry.TLSServerName, c.want, c.wantCA)
		}
		if got.Data["note"] != "the administrator's" || got.Labels["own"] != "label" {
			t.Errorf("%s: the rest is %v with the labels %v", name, got.Data, got.Labels)
		}
	}
}

// TestRefreshWithoutClusterInfo checks that a cluster to which nothing joins gets none.
func TestRefreshWithoutClusterInfo(t *testing.T) {
	client := fake.NewClientset()
	if err := (&Cluster{Server: "https://192.0.2.1:6443"}).Refresh(t.Context(), client, nil); err != nil {
		t.Fatal(err)
	}
	if list, err := client.CoreV1().ConfigMaps("kube-public").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestNoAddress(t *testing.T) {
	c := &Cluster{Authority: []byte("one")}
	if err := c.Prepare(t.Context(), fake.NewClientset()); err == nil || !strings.Contains(err.Error(), "default/kubernetes has no endpoint") {
		t.Errorf("%v", err)
	}
}

func TestKubeconfig(t *testing.T) {
	c := &Cluster{Server: "https://192.0.2.1:6443", Authority: []byte("one")}
	text, err := c.Kubeconfig(bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil || config.Host != c.Server || string(config.CAData) != "one" || config.BearerToken != "abcdef.0123456789abcdef" {
		t.Errorf("%+v, %v", config, err)
	}
}

// otherAuthority is a certificate that nobody uses.
const otherAuthority = `-----BEGIN CERTIFICATE-----
MIIBgDCCASegAwIBAgIUEzCLSl4V/HmmbVWshvK1J84i/I4wCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKa3ViZXJuZXRlczAgFw0yNjExMjkwMzIwMjVaGA8yMTI2MTEw
NTAzMjAyNVowFTETMBEGA1UEAwwKa3ViZXJuZXRlczBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABEhv+z/xSfSBMnXSy6HirvoC3AoB9uCRIkVh/1F8K4THjTrbu8hA
bIzjpJEnrmi+mkCPHIPkSVqpoQ679hXadGWjUzBRMB0GA1UdDgQWBBSEt8VJeU6L
VFU48KUoM/Qjrq1xxDAfBgNVHSMEGDAWgBSEt8VJeU6LVFU48KUoM/Qjrq1xxDAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIGXyrkEQ47tj1q/SahGc
jxkpupkuT9OxrV0+0QOlAni3AiBi/Bb9cQD5kOXuIwjPVVETK2vn44oLQh/vEiBt
dPkumw==
-----END CERTIFICATE-----`

// The hash is the one that kubeadm's documentation computes with openssl:
// openssl x509 -pubkey -in ca.crt | openssl pkey -pubin -outform der | openssl dgst -sha256.
func TestAuthorityHashes(t *testing.T) {
	c := &Cluster{Authority: []byte(otherAuthority + "\n" + otherAuthority)}
	hashes, err := c.AuthorityHashes()
	const want = "sha256:1e06dc046c4c9e73c192f1217fa94c6d32540192c704d93001e30f0edb6c0e66"
	if err != nil || !slices.Equal(hashes, []string{want, want}) {
		t.Errorf("%v, %v", hashes, err)
	}
	c.Authority = []byte("none")
	if hashes, err := c.AuthorityHashes(); err == nil {
		t.Errorf("%v of what is not PEM", hashes)
	}
}
