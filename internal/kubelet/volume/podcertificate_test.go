package volume

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// certified is a pod that asks for a certificate.
type certified struct {
	*testing.T
	api    *fake.Clientset
	cache  *CertificateCache
	pod    *v1.Pod
	source *v1.PodCertificateProjection
}

func newCertified(t *testing.T) *certified {
	source := &v1.PodCertificateProjection{
		SignerName: "example.com/mesh", KeyType: "ECDSAP256", MaxExpirationSeconds: new(int32(86400)),
		CredentialBundlePath: "bundle", UserAnnotations: map[string]string{"example.com/path": "a"},
	}
	pod := podWith(nil, v1.Volume{Name: "tls", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{PodCertificate: source}}}}})
	pod.Name, pod.Spec.ServiceAccountName = "web", "shop"
	api := fake.NewSimpleClientset(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop", UID: "account"}})
	made := 0
	api.PrependReactor("create", "podcertificaterequests", func(action k8stesting.Action) (bool, runtime.Object, error) {
		request := action.(k8stesting.CreateAction).GetObject().(*certificatesv1.PodCertificateRequest)
		made++
		request.Name = request.GenerateName + strconv.Itoa(made)
		return true, request, api.Tracker().Create(certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests"), request, request.Namespace)
	})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node"}}
	return &certified{t, api, NewCertificateCache(api, func() *v1.Node { return node }), pod, source}
}

// ask asks for the pod's certificate.
func (c *certified) ask() (key, chain string, err error) {
	k, all, err := c.cache.Certificate(c.Context(), c.pod, "tls", 0, c.source)
	return string(k), string(all), err
}

// requests returns how many requests there are, and the one of that name.
func (c *certified) requests(name string) (int, *certificatesv1.PodCertificateRequest) {
	c.Helper()
	list, err := c.api.CertificatesV1().PodCertificateRequests("default").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Name == name {
			return len(list.Items), &list.Items[i]
		}
	}
	return len(list.Items), nil
}

// answer gives a request a condition. An issued certificate lasts a day, and is to be
// renewed four hours before its end.
func (c *certified) answer(name, condition, content string) {
	c.Helper()
	_, request := c.requests(name)
	if request == nil {
		c.Fatalf("there is no request %s", name)
	}
	request.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "Policy", Message: "says so"}}
	if condition == certificatesv1.PodCertificateRequestConditionTypeIssued {
		request.Status.CertificateChain = "leaf:\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte(content)}))
		request.Status.BeginRefreshAt = new(metav1.NewTime(time.Now().Add(20 * time.Hour)))
		request.Status.NotAfter = new(metav1.NewTime(time.Now().Add(24 * time.Hour)))
	}
	if _, err := c.api.CertificatesV1().PodCertificateRequests("default").UpdateStatus(c.Context(), request, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// issued is the chain of certificates that the pod gets.
func issued(content string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(content)}))
}

// fits checks that a private key is the one of a request.
func (c *certified) fits(key string, request *certificatesv1.PodCertificateRequest) {
	c.Helper()
	block, _ := pem.Decode([]byte(key))
	if block == nil || block.Type != "PRIVATE KEY" {
		c.Fatalf("no key: %q", key)
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		c.Fatal(err)
	}
	stub, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	if err != nil {
		c.Fatal(err)
	}
	if err := stub.CheckSignature(); err != nil {
		c.Error(err)
	}
	if public, ok := private.(crypto.Signer).Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(stub.PublicKey) {
		c.Error("the request is for another key")
	}
}

// A certificate is requested once, renewed when the signer said, and not asked for
// again once it was refused.
func TestPodCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t)
		for range 2 {
			if _, _, err := c.ask(); !errors.Is(err, errNotIssued) {
				t.Fatalf("before an answer: %v", err)
			}
		}
		n, request := c.requests("req-1")
		if n != 1 || request == nil {
			t.Fatalf("%d requests, want req-1", n)
		}
		got := fmt.Sprint(request.Spec.SignerName, request.Spec.PodName, request.Spec.PodUID, request.Spec.ServiceAccountName, request.Spec.ServiceAccountUID,
			request.Spec.NodeName, request.Spec.NodeUID, *request.Spec.MaxExpirationSeconds, request.Spec.UnverifiedUserAnnotations, request.OwnerReferences[0].UID)
		want := fmt.Sprint("example.com/mesh", "web", types.UID("uid"), "shop", types.UID("account"), types.NodeName("n1"), types.UID("node"), int32(86400),
			map[string]string{"example.com/path": "a"}, types.UID("uid"))
		if got != want {
			t.Errorf("requested %s, want %s", got, want)
		}

		c.answer("req-1", "Issued", "one")
		key, chain, err := c.ask()
		if err != nil || chain != issued("one") {
			t.Fatalf("got %s %v, want %s", chain, err, issued("one"))
		}
		c.fits(key, request)
		time.Sleep(20*time.Hour - time.Second)
		if _, again, err := c.ask(); err != nil || again != chain {
			t.Errorf("later: %s %v", again, err)
		}
		if n, _ := c.requests(""); n != 1 {
			t.Errorf("%d requests before it is time", n)
		}

		time.Sleep(certificateJitter + time.Second)
		if _, again, err := c.ask(); err != nil || again != chain {
			t.Errorf("while it is renewed: %s %v", again, err)
		}
		c.answer("req-2", "Issued", "two")
		other, chain, err := c.ask()
		if err != nil || chain != issued("two") || other == key {
			t.Errorf("renewed: %s %v, with another key: %t", chain, err, other != key)
		}

		time.Sleep(21 * time.Hour)
		if _, _, err := c.ask(); err != nil {
			t.Error(err)
		}
		c.answer("req-3", "Denied", "")
		for range 2 {
			if _, _, err := c.ask(); err == nil || !strings.Contains(err.Error(), `permanently denied: reason="Policy" message="says so"`) {
				t.Errorf("denied: %v", err)
			}
		}
		c.cache.Forget(c.pod.UID)
		if _, _, err := c.ask(); !errors.Is(err, errNotIssued) {
			t.Errorf("of a pod that was forgotten: %v", err)
		}
		if n, _ := c.requests(""); n != 4 {
			t.Errorf("%d requests, want 4", n)
		}
	})
}

// A request that somebody deletes is made again, but not before it is sure that it is
// not merely new.
func TestLostCertificateRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t)
		if _, _, err := c.ask(); !errors.Is(err, errNotIssued) {
			t.Fatal(err)
		}
		if err := c.api.CertificatesV1().PodCertificateRequests("default").Delete(t.Context(), "req-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, _, err := c.ask(); err == nil || errors.Is(err, errNotIssued) {
				t.Errorf("without the request: %v", err)
			}
		}
		time.Sleep(abandonRequest + time.Second)
		_, _, _ = c.ask()
		if _, _, err := c.ask(); !errors.Is(err, errNotIssued) {
			t.Errorf("after ten minutes: %v", err)
		}
		if n, again := c.requests("req-2"); n != 1 || again == nil {
			t.Errorf("%d requests, want req-2", n)
		}
	})
}

// Keys of all types can be made.
func TestKeysOfPods(t *testing.T) {
	c := newCertified(t)
	for _, kind := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		key, err := newKey(kind)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		c.fits(string(key.private), &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: key.stub}})
	}
	if _, err := newKey("DSA"); err == nil {
		t.Error("a key of an unknown type was made")
	}
}

// A key is made once for a certificate, however often the request for it fails.
func TestKeyOutlivesFailedRequests(t *testing.T) {
	c := newCertified(t)
	failures, made := 3, 0
	c.api.PrependReactor("create", "podcertificaterequests", func(k8stesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, errors.New("a webhook refuses it")
	})
	c.cache.keys.generate = func(kind string) (keyPair, error) {
		made++
		return newKey(kind)
	}
	for range 3 {
		if _, _, err := c.ask(); err == nil || !strings.Contains(err.Error(), "a webhook refuses it") {
			t.Fatalf("a request that fails: %v", err)
		}
	}
	if _, _, err := c.ask(); !errors.Is(err, errNotIssued) {
		t.Fatal(err)
	}
	if made != 1 || len(c.cache.keys.made) > 0 {
		t.Errorf("%d keys were made for one certificate, and %d are kept", made, len(c.cache.keys.made))
	}
}

// A pod has as many certificates with RSA keys as a node makes in a minute or so.
func TestManyRSAKeys(t *testing.T) {
	for _, test := range []struct {
		kind  string
		count int
		fine  bool
	}{
		{"RSA4096", maxTokens / costOfRSA, true},
		{"RSA3072", maxTokens/costOfRSA + 1, false},
		{"ECDSAP256", maxTokens, true},
		{"ED25519", maxTokens + 1, false},
	} {
		disk := &files.Memory{}
		v := &Manager{Root: "/k", FS: disk, Mounter: disk, Certificates: ready{}}
		pod := podWith(nil, projectedVolume(test.count, func(i int) v1.VolumeProjection {
			return v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyType: test.kind, CredentialBundlePath: numbered(i)}}
		}))
		if _, _, err := v.SetUp(t.Context(), pod, Facts{}); (err == nil) != test.fine || err != nil && !strings.Contains(err.Error(), "an RSA key counts as") {
			t.Errorf("%d of %s: %v", test.count, test.kind, err)
		}
	}
}

// ready is a signer that has issued all certificates.
type ready struct{}

func (ready) Certificate(context.Context, *v1.Pod, string, int, *v1.PodCertificateProjection) (key, chain []byte, err error) {
	return []byte("key\n"), []byte("chain\n"), nil
}
func (ready) Forget(types.UID)                    {}
func (ready) State(types.UID, string, int) string { return "fresh" }

// A pod has its key and certificates together, or each in a file.
func TestFilesOfAPodCertificate(t *testing.T) {
	c := newCertified(t)
	c.source.KeyPath, c.source.CertificateChainPath = "tls/key", "tls/chain"
	c.pod.Spec.SecurityContext.RunAsUser = new(int64(1000))
	disk := &files.Memory{}
	v := &Manager{Root: "/k", FS: disk, Mounter: disk, Certificates: ready{}}
	paths, _, err := v.SetUp(t.Context(), c.pod, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"bundle": "key\nchain\n", "tls/key": "key\n", "tls/chain": "chain\n"} {
		content, err := disk.ReadFile(paths["tls"]+"/"+name, 1<<10)
		if err != nil || string(content) != want {
			t.Errorf("%s: %q %v, want %q", name, content, err, want)
		}
		if mode, err := disk.Stat(paths["tls"] + "/" + name); err != nil || mode != 0o600 {
			t.Errorf("%s: mode %v %v", name, mode, err)
		}
	}
}
