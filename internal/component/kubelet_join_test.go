package component_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
	"github.com/coracle-io/coracle/internal/addresspool"
	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/kubelet/certificate"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/nodejoin"
)

var joinToken = bootstraptoken.Token{ID: "abcdef", Secret: "0123456789abcdef"}

// joinable is a cluster that nodes can join with a bootstrap token.
type joinable struct {
	t       *testing.T
	api     kubernetes.Interface
	cluster *nodejoin.Cluster
	dir     string // of the cluster
}

func newJoinable(t *testing.T) *joinable {
	dir := t.TempDir()
	c := clustertest.Start(t, cluster.Options{DataDir: dir})
	ca, err := os.ReadFile(filepath.Join(dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	j := &joinable{t: t, api: c.Client(), cluster: &nodejoin.Cluster{Server: c.URL(), Authority: ca}, dir: dir}
	token := bootstraptoken.BootstrapToken{
		Token: joinToken, Usages: []string{bootstraptoken.Signing, bootstraptoken.Authentication}, Groups: []string{bootstraptoken.DefaultGroup},
	}
	if _, err := j.api.CoreV1().Secrets("kube-system").Create(t.Context(), token.ToSecret(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := j.cluster.Prepare(t.Context(), j.api); err != nil {
		t.Fatal(err)
	}
	return j
}

// authority returns the cluster's authority.
func (j *joinable) authority() tls.Certificate {
	j.t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(j.dir, "pki", "ca.crt"), filepath.Join(j.dir, "pki", "ca.key"))
	if err != nil {
		j.t.Fatal(err)
	}
	return pair
}

// bootstrapKubeconfig writes a kubeconfig with the bootstrap token.
func (j *joinable) bootstrapKubeconfig() string {
	j.t.Helper()
	content, err := j.cluster.Kubeconfig(joinToken)
	if err != nil {
		j.t.Fatal(err)
	}
	path := filepath.Join(j.t.TempDir(), "bootstrap-kubelet.conf")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		j.t.Fatal(err)
	}
	return path
}

// eventually waits until check succeeds.
func (j *joinable) eventually(what string, check func(ctx context.Context) error) {
	j.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(j.t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		j.t.Fatalf("%s: %v", what, last)
	}
}

// run runs a kubelet on a machine in memory until the test ends.
func (j *joinable) run(line string) (end func()) {
	j.t.Helper()
	k := component.NewKubelet()
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	k.AddFlags(fs)
	if err := fs.Parse(strings.Fields(line)); err != nil {
		j.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	levels, err := logging.ParseLevels("2")
	if err != nil {
		j.t.Fatal(err)
	}
	ctx = logging.New(j.t.Output(), levels).Context(ctx, "kubelet")
	ended := make(chan error, 1)
	runtime, machine := inmemory.New(), &files.Memory{}
	k.Config.Runtime, k.Config.Images, k.Config.Files, k.Config.Mounter, k.Config.Groups = runtime, runtime.Images(), machine, machine, &cgroup.Memory{}
	k.Config.Machine = &node.Fixed{Resources: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110")}}
	go func() {
		ended <- k.Run(ctx)
	}()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			j.t.Errorf("the kubelet: %v", err)
		}
	})
	j.t.Cleanup(end)
	return end
}

func (j *joinable) ready(name string) {
	j.t.Helper()
	j.eventually("the node is not Ready", func(ctx context.Context) error {
		n, err := j.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", n.Status.Conditions)
	})
}

// A node that has a token and the hash of the authority finds the cluster without
// credentials, with which it can read nothing else.
func TestNodeDiscoversTheCluster(t *testing.T) {
	j := newJoinable(t)
	hashes, err := j.cluster.AuthorityHashes()
	if err != nil {
		t.Fatal(err)
	}
	found, err := nodejoin.Discover(t.Context(), j.cluster.Server, joinToken, hashes)
	if err != nil || !reflect.DeepEqual(found, j.cluster) {
		t.Errorf("%+v, %v", found, err)
	}
	anybody, err := kubernetes.NewForConfig(&rest.Config{Host: j.cluster.Server, TLSClientConfig: rest.TLSClientConfig{CAData: j.cluster.Authority}})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"kube-public", "kube-system"} {
		if _, err := anybody.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("ConfigMaps of %s: %v", namespace, err)
		}
	}
}

// A node that joins gets an identity with the token, which it does not keep. With it,
// the components of the node read what they need, and no more.
func TestIdentityOfANodeThatJoins(t *testing.T) {
	j := newJoinable(t)
	dir := filepath.Join(t.TempDir(), "node")
	files := nodejoin.Files(dir)
	for range 2 { // the second time, the identity is there
		if err := files.Request(t.Context(), j.cluster, joinToken, "worker"); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "bootstrap*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
	config, err := files.Config()
	if err != nil {
		t.Fatal(err)
	}
	own, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	j.eventually("the network is not published", func(ctx context.Context) error {
		n, err := nodejoin.ReadNetwork(ctx, own)
		if err == nil && (n.ClusterCIDR != "10.244.0.0/16" || n.NodeMaskSizeIPv4 != 24) {
			t.Errorf("the network is %+v", n)
		}
		return err
	})
	ctx, all := t.Context(), metav1.ListOptions{}
	for what, do := range map[string]func() error{
		"services":         func() error { _, err := own.CoreV1().Services("").List(ctx, all); return err },
		"endpoint slices":  func() error { _, err := own.DiscoveryV1().EndpointSlices("").List(ctx, all); return err },
		"nodes":            func() error { _, err := own.CoreV1().Nodes().List(ctx, all); return err },
		"pods":             func() error { _, err := own.CoreV1().Pods("").List(ctx, all); return err },
		"namespaces":       func() error { _, err := own.CoreV1().Namespaces().List(ctx, all); return err },
		"network policies": func() error { _, err := own.NetworkingV1().NetworkPolicies("").List(ctx, all); return err },
		"address pools": func() error {
			_, err := own.CoreV1().ConfigMaps(addresspool.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + addresspool.Name})
			return err
		},
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, do := range map[string]func() error{
		"secrets":     func() error { _, err := own.CoreV1().Secrets("kube-system").List(ctx, all); return err },
		"config maps": func() error { _, err := own.CoreV1().ConfigMaps("kube-system").List(ctx, all); return err },
		"a volume": func() error {
			_, err := own.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}, metav1.CreateOptions{})
			return err
		},
		"an endpoint slice of the DNS server": func() error {
			return own.DiscoveryV1().EndpointSlices("kube-system").Delete(ctx, "kube-dns", metav1.DeleteOptions{})
		},
		"another node": func() error { return own.CoreV1().Nodes().Delete(ctx, "other", metav1.DeleteOptions{}) },
	} {
		if err := do(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want that it is forbidden", what, err)
		}
	}
}

// A kubelet without any certificate joins with a bootstrap token: it gets a
// client certificate, registers its node, and serves with a certificate that the
// cluster signs once it is approved.
func TestKubeletJoinsWithABootstrapToken(t *testing.T) {
	j := newJoinable(t)
	dir, port := t.TempDir(), freeport.For(t)
	kubeconfig := filepath.Join(dir, "kubelet.conf")
	line := fmt.Sprintf("--bootstrap-kubeconfig=%s --kubeconfig=%s --cert-dir=%s/pki --root-dir=%s --rotate-certificates --rotate-server-certificates "+
		"--hostname-override=worker --node-ip=127.0.0.1 --address=127.0.0.1 --port=%d --healthz-port=0 --fail-swap-on=false", j.bootstrapKubeconfig(), kubeconfig, dir, dir, port)
	stop := j.run(line)
	j.ready("worker")

	current := filepath.Join(dir, "pki", "kubelet-client-current.pem")
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if user := config.AuthInfos["default-auth"]; user == nil || user.ClientCertificate != current || user.ClientKey != current || user.Token != "" {
		t.Errorf("the kubeconfig's user is %+v", user)
	}
	var serving *certificatesv1.CertificateSigningRequest
	j.eventually("no serving certificate is requested", func(ctx context.Context) error {
		all, err := j.api.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range all.Items {
			if all.Items[i].Spec.SignerName == certificatesv1.KubeletServingSignerName {
				serving = &all.Items[i]
				return nil
			}
		}
		return fmt.Errorf("%d requests", len(all.Items))
	})
	if serving.Spec.Username != "system:node:worker" {
		t.Errorf("%s requests the serving certificate", serving.Spec.Username)
	}
	serving.Status.Conditions = append(serving.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue, Reason: "Test"})
	if _, err := j.api.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), serving.Name, serving, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(j.authority().Leaf)
	j.eventually("the serving certificate is not in use", func(context.Context) error {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{RootCAs: trusted})
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if _, err := os.Stat(filepath.Join(dir, "pki", "kubelet-server-current.pem")); err != nil {
		t.Error(err)
	}

	// It starts again without the bootstrap kubeconfig.
	stop()
	if err := j.api.CoreV1().Nodes().Delete(t.Context(), "worker", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	j.run(strings.Replace(line, "--bootstrap-kubeconfig=", "--bootstrap-kubeconfig=/nonexistent", 1))
	j.ready("worker")
}

// Without rotateCertificates, the first certificate is requested before the
// kubelet starts.
func TestBootstrapWithoutRotation(t *testing.T) {
	j := newJoinable(t)
	dir := t.TempDir()
	j.run(fmt.Sprintf("--bootstrap-kubeconfig=%s --kubeconfig=%s/kubelet.conf --cert-dir=%s/pki --root-dir=%s --hostname-override=worker --node-ip=127.0.0.1 "+
		"--enable-server=false --healthz-port=0 --fail-swap-on=false", j.bootstrapKubeconfig(), dir, dir, dir))
	j.ready("worker")
	if _, err := os.Stat(filepath.Join(dir, "kubelet.conf")); err != nil {
		t.Error(err)
	}
}

// nodeCertificate writes a client certificate of the node, and its key, that is
// valid from an hour ago.
func (j *joinable) nodeCertificate(path string, left time.Duration) {
	j.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		j.t.Fatal(err)
	}
	authority := j.authority()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "system:node:worker", Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		j.t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		j.t.Fatal(err)
	}
	all := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})...)
	if err := os.WriteFile(path, all, 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// A client certificate that expires soon is renewed with itself, and the
// connections that are open are replaced by those with the new one.
func TestClientCertificateIsRenewed(t *testing.T) {
	j := newJoinable(t)
	dir := t.TempDir()
	old := filepath.Join(dir, "old.pem")
	j.nodeCertificate(old, 2*time.Minute)
	config, err := clientcmd.LoadFromFile(j.bootstrapKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{"tls-bootstrap-token-user": {ClientCertificate: old, ClientKey: old}}
	kubeconfig := filepath.Join(dir, "kubelet.conf")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	c, err := certificate.NewClient(&certificate.ClientOptions{Kubeconfig: kubeconfig, Directory: filepath.Join(dir, "pki"), NodeName: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	own, err := c.Provider().As("system:node:worker")
	if err != nil {
		t.Fatal(err)
	}
	credential := func(ctx context.Context) (string, error) {
		review, err := own.Kubernetes.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return strings.Join(review.Status.UserInfo.Extra["authentication.kubernetes.io/credential-id"], ","), nil
	}
	fingerprint := func(path string) string {
		pair, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			return err.Error()
		}
		sum := sha256.Sum256(pair.Certificate[0])
		return "X509SHA256=" + hex.EncodeToString(sum[:])
	}
	if got, err := credential(t.Context()); err != nil || got != fingerprint(old) {
		t.Fatalf("the first request has the credential %s (%v), want that of the old certificate", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	j.eventually("requests do not have the new certificate", func(ctx context.Context) error {
		got, err := credential(ctx)
		if err != nil {
			return err
		}
		if want := fingerprint(filepath.Join(dir, "pki", "kubelet-client-current.pem")); got != want {
			return fmt.Errorf("credential %s, want %s", got, want)
		}
		return nil
	})
}
