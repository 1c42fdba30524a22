package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/pki"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

const lifetime = 10 * time.Hour

// authority answers the requests for certificates of one node.
type authority struct {
	t      *testing.T
	client *fake.Clientset
	key    *ecdsa.PrivateKey

	away     bool                                // requests fail
	refuse   certificatesv1.RequestConditionType // instead of signing
	asked    []time.Time
	requests []*x509.CertificateRequest
	last     *certificatesv1.CertificateSigningRequest
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, client: fake.NewSimpleClientset(), key: newKey(t)}
	a.client.PrependReactor("create", "certificatesigningrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a.asked = append(a.asked, time.Now())
		if a.away {
			return true, nil, errors.New("connection refused")
		}
		a.answer(action.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest))
		return false, nil, nil
	})
	return a
}

// answer signs or refuses a request before anybody sees it.
func (a *authority) answer(r *certificatesv1.CertificateSigningRequest) {
	block, _ := pem.Decode(r.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		a.t.Error(err)
		return
	}
	if a.last != nil { // a fake clientset does not select by name
		_ = a.client.Tracker().Delete(certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), "", a.last.Name)
	}
	a.requests, a.last = append(a.requests, request), r
	r.Name = fmt.Sprint("csr-", len(a.requests))
	r.UID = types.UID(r.Name)
	condition := certificatesv1.CertificateApproved
	if a.refuse != "" {
		condition = a.refuse
	} else {
		r.Status.Certificate = a.sign(request.Subject.CommonName, request.PublicKey, request)
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: condition, Status: v1.ConditionTrue}}
}

// sign returns a certificate that is valid from now for lifetime.
func (a *authority) sign(name string, public any, request *x509.CertificateRequest) []byte {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.requests))), Subject: nodeSubject("n"), NotBefore: time.Now(), NotAfter: time.Now().Add(lifetime),
	}
	template.Subject.CommonName = name
	if request != nil {
		template.DNSNames, template.IPAddresses = request.DNSNames, request.IPAddresses
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, a.key)
	if err != nil {
		a.t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair returns a certificate for a node that was signed now, and its key.
func (a *authority) pair() (cert, key []byte) {
	a.t.Helper()
	private := newKey(a.t)
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	request := &x509.CertificateRequest{IPAddresses: servingRequest("n", addresses("10.0.0.1"), false).IPAddresses}
	return a.sign(pki.NodePrefix+"n", &private.PublicKey, request), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func addresses(ips ...string) (out []v1.NodeAddress) {
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return out
}

// node is a machine with a serving certificate.
type node struct {
	t         *testing.T
	authority *authority
	directory string
	addresses []v1.NodeAddress
	metrics   *prometheus.Registry
	serving   *Renewed
	end       func()
}

func newNode(t *testing.T) *node {
	// client-go's manager stops only when it would have renewed the certificate.
	t.Cleanup(func() { time.Sleep(2 * lifetime) })
	return &node{t: t, authority: newAuthority(t), directory: t.TempDir(), addresses: addresses("10.0.0.1")}
}

// start starts the node's kubelet, and end stops it.
func (n *node) start() {
	n.t.Helper()
	n.metrics = prometheus.NewRegistry()
	var err error
	n.serving, err = Serving(&ServingOptions{
		Directory: n.directory, NodeName: "n", API: n.authority.client, Addresses: func() []v1.NodeAddress { return n.addresses }, Metrics: n.metrics,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.serving.Run(ctx)
	}()
	n.end = func() { cancel(); <-ended }
	n.t.Cleanup(n.end)
	synctest.Wait()
}

// requested fails the test unless so many requests have been sent.
func (n *node) requested(when string, want int) {
	n.t.Helper()
	synctest.Wait()
	if got := len(n.authority.asked); got != want {
		n.t.Errorf("%s: %d requests, want %d", when, got, want)
	}
}

// serial returns which request the certificate that is shown answers, 0 if none is shown.
func (n *node) serial() int64 {
	n.t.Helper()
	synctest.Wait()
	c, err := n.serving.GetCertificate(nil)
	if err != nil {
		if !errors.Is(err, errNoServing) || n.serving.Current() != nil {
			n.t.Errorf("unexpected error %v", err)
		}
		return 0
	}
	return c.Leaf.SerialNumber.Int64()
}

func (n *node) failures() float64 {
	n.t.Helper()
	return gathered(n.t, n.metrics, "kubelet_server_expiration_renew_errors")
}

// gathered returns the value of a counter or gauge, or the number of
// observations of a histogram.
func gathered(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if m := f.GetMetric(); f.GetName() == name && len(m) == 1 {
			return m[0].GetCounter().GetValue() + m[0].GetGauge().GetValue() + float64(m[0].GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// newest is the path of the link to the newest serving certificate.
func (n *node) newest() string { return filepath.Join(n.directory, servingName+"-current.pem") }

// What a node requests, and where it keeps what it gets.
func TestServingCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.addresses = []v1.NodeAddress{
			{Type: v1.NodeHostName, Address: "n"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"},
			{Type: v1.NodeExternalDNS, Address: "n.example.com"}, {Type: v1.NodeInternalIP, Address: "fd00::1"}, {Type: v1.NodeInternalDNS},
			{Type: v1.NodeHostName, Address: "10.0.0.1"},
		}
		n.start()
		if got := n.serial(); got != 1 {
			t.Fatalf("certificate %d is shown", got)
		}
		r := n.authority.requests[0]
		if r.Subject.CommonName != "system:node:n" || !slices.Equal(r.Subject.Organization, []string{"system:nodes"}) {
			t.Errorf("subject %s", r.Subject)
		}
		if !slices.Equal(r.DNSNames, []string{"n", "n.example.com"}) || fmt.Sprint(r.IPAddresses) != "[10.0.0.1 fd00::1]" {
			t.Errorf("names %v, addresses %v", r.DNSNames, r.IPAddresses)
		}
		if spec := n.authority.last.Spec; spec.SignerName != certificatesv1.KubeletServingSignerName ||
			!slices.Equal(spec.Usages, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}) {
			t.Errorf("signer %s, usages %v", spec.SignerName, spec.Usages)
		}
		if target, err := os.Readlink(n.newest()); err != nil || filepath.Dir(target) != n.directory {
			t.Errorf("the newest is %s, error %v", target, err)
		}
		if info, err := os.Stat(n.newest()); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, error %v", info.Mode(), err)
		}
		n.end()
		n.start()
		if got := n.serial(); got != 1 {
			t.Errorf("after a restart certificate %d is shown", got)
		}
		n.requested("after a restart", 1)
	})
}

// A certificate is requested for addresses, and only if asked for also for names alone.
func TestServingRequest(t *testing.T) {
	host, dns, ip := v1.NodeAddress{Type: v1.NodeHostName, Address: "n"}, v1.NodeAddress{Type: v1.NodeExternalDNS, Address: "n.example.com"}, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "10.0.0.1"}
	for name, test := range map[string]struct {
		addresses       []v1.NodeAddress
		want, ofDNSOnly string // "" is no request
	}{
		"nothing":              {},
		"an empty name":        {addresses: []v1.NodeAddress{{Type: v1.NodeHostName}}},
		"an address":           {[]v1.NodeAddress{ip}, "[] [10.0.0.1]", "[] [10.0.0.1]"},
		"names":                {[]v1.NodeAddress{host, dns}, "", "[n n.example.com] []"},
		"names and an address": {[]v1.NodeAddress{dns, host, ip}, "[n n.example.com] [10.0.0.1]", "[n n.example.com] [10.0.0.1]"},
	} {
		for dnsOnly, want := range map[bool]string{false: test.want, true: test.ofDNSOnly} {
			got := ""
			if r := servingRequest("n", test.addresses, dnsOnly); r != nil {
				got = fmt.Sprint(r.DNSNames, r.IPAddresses)
			}
			if got != want {
				t.Errorf("%s, DNS only %t: %q, want %q", name, dnsOnly, got, want)
			}
		}
	}
}

// Without an IP address nothing is requested. A new address causes a request at
// once, one that goes does not.
func TestAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n"}}
		n.start()
		time.Sleep(time.Hour)
		n.requested("without an address", 0)
		if got := n.serial(); got != 0 {
			t.Errorf("certificate %d is shown", got)
		}
		for i, step := range []struct {
			addresses []v1.NodeAddress
			requests  int
		}{
			{addresses("10.0.0.1"), 1}, {addresses("10.0.0.1", "10.0.0.2"), 2}, {addresses("10.0.0.2"), 2}, {addresses("10.0.0.3"), 3},
		} {
			n.addresses = step.addresses
			time.Sleep(time.Minute)
			n.requested(fmt.Sprint("step ", i), step.requests)
		}
	})
}

// A certificate is renewed when 70 to 90 per cent of its lifetime have passed.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		renewals := 0
		n.start()
		n.requested("at the beginning", 1)
		n.serving.changed = func() { renewals++ }
		for i := 1; i <= 3; i++ {
			began := n.serving.Current().Leaf.NotBefore
			if got := gathered(t, n.metrics, "kubelet_certificate_manager_server_ttl_seconds"); got != time.Until(began.Add(lifetime)).Seconds() {
				t.Errorf("the certificate is valid for %g s", got)
			}
			time.Sleep(time.Until(began.Add(lifetime*7/10 - time.Minute)))
			n.requested("before 70 per cent", i)
			time.Sleep(time.Until(began.Add(lifetime*9/10 + time.Minute)))
			n.requested("after 90 per cent", i+1)
			if got := n.serial(); got != int64(i+1) || renewals != i {
				t.Errorf("certificate %d is shown after %d renewals, want %d", got, renewals, i+1)
			}
			if got := gathered(t, n.metrics, "kubelet_certificate_manager_server_rotation_seconds"); got != float64(i) {
				t.Errorf("%g ages of certificates were observed, want %d", got, i)
			}
		}
		if got := n.failures(); got != 0 {
			t.Errorf("%g failures", got)
		}
	})
}

// A refused request is repeated with a new key, at growing intervals, while the
// old certificate stays.
func TestRefusedRequest(t *testing.T) {
	for _, how := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.start()
			n.authority.refuse = how
			time.Sleep(lifetime * 95 / 100)
			if got := n.serial(); got != 1 {
				t.Errorf("%s: certificate %d is shown", how, got)
			}
			asked := n.authority.asked[1:]
			if len(asked) < 10 || n.failures() != float64(len(asked)) {
				t.Fatalf("%s: %d requests, %g failures", how, len(asked), n.failures())
			}
			if first, late := asked[1].Sub(asked[0]), asked[9].Sub(asked[8]); first > 5*time.Second || late < 30*time.Second || late > 40*time.Second {
				t.Errorf("%s: requests are repeated after %s, later after %s", how, first, late)
			}
			if a, b := n.authority.requests[1].PublicKey.(*ecdsa.PublicKey), n.authority.requests[2].PublicKey.(*ecdsa.PublicKey); a.Equal(b) {
				t.Errorf("%s: the key is used again", how)
			}
			n.authority.refuse = ""
			time.Sleep(time.Minute)
			if got := n.serial(); got != int64(len(n.authority.requests)) {
				t.Errorf("%s: certificate %d is shown, want %d", how, got, len(n.authority.requests))
			}
		})
	}
}

// While the server is away a node keeps its certificate, also when that has
// expired, and gets another when the server is back.
func TestServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.authority.away = true
		time.Sleep(lifetime + time.Hour)
		if got := n.serial(); got != 1 {
			t.Errorf("certificate %d is shown", got)
		}
		if got := gathered(t, n.metrics, "kubelet_certificate_manager_server_ttl_seconds"); got != -3600 {
			t.Errorf("the certificate is valid for %g s", got)
		}
		if n.failures() < 10 {
			t.Errorf("%g failures", n.failures())
		}
		n.end()
		n.start()
		if got := n.serial(); got != 0 {
			t.Errorf("after a restart the expired certificate %d is shown", got)
		}
		n.authority.away = false
		time.Sleep(time.Minute)
		if got := n.serial(); got == 0 || got != int64(len(n.authority.requests)) {
			t.Errorf("certificate %d is shown, want %d", got, len(n.authority.requests))
		}
	})
}

// A certificate that cannot be used is replaced by a new one: its file has
// another key, or was not written completely when the machine stopped.
func TestDamagedCertificate(t *testing.T) {
	for name, contents := range map[string]func(a *authority) []byte{
		"another key": func(a *authority) []byte {
			cert, _ := a.pair()
			_, key := a.pair()
			return slices.Concat(cert, key)
		},
		"no key":   func(a *authority) []byte { cert, _ := a.pair(); return cert },
		"half":     func(a *authority) []byte { cert, key := a.pair(); return slices.Concat(cert, key[:len(key)/2]) },
		"nothing":  func(*authority) []byte { return nil },
		"no block": func(*authority) []byte { return []byte("certificate") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				damaged := filepath.Join(n.directory, servingName+"-1999-01-01-00-00-00.pem")
				write(t, damaged, contents(n.authority))
				if err := os.Symlink(damaged, n.newest()); err != nil {
					t.Fatal(err)
				}
				n.start()
				if got := n.serial(); got != 1 {
					t.Errorf("certificate %d is shown", got)
				}
				if target, err := os.Readlink(n.newest()); err != nil || target == damaged {
					t.Errorf("the newest is %s, error %v", target, err)
				}
				if _, err := os.Stat(damaged); err != nil {
					t.Errorf("the damaged file is gone: %v", err)
				}
			})
		})
	}
}

// A pair of the administrator that does not match is an error, and so is a file
// in the place of the link.
func TestWrongFiles(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.pair()
	_, other := a.pair()
	dir := t.TempDir()
	certFile, keyFile, otherFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "other.key")
	write(t, certFile, cert)
	write(t, keyFile, key)
	write(t, otherFile, other)
	serving := func(directory, keyFile string) (*Renewed, error) {
		return Serving(&ServingOptions{
			Directory: directory, CertFile: certFile, KeyFile: keyFile, NodeName: "n", API: a.client,
			Addresses: func() []v1.NodeAddress { return nil }, Metrics: prometheus.NewRegistry(),
		})
	}
	if s, err := serving(t.TempDir(), keyFile); err != nil || s.Current() == nil {
		t.Errorf("the pair of the administrator is not shown: error %v", err)
	}
	if _, err := serving(t.TempDir(), otherFile); err == nil {
		t.Error("a wrong key is accepted")
	}
	blocked := t.TempDir()
	write(t, filepath.Join(blocked, servingName+"-current.pem"), cert)
	if _, err := serving(blocked, keyFile); err == nil {
		t.Error("a file in the place of the link is accepted")
	}
}

// A kubelet that is killed while it stores a certificate finds one of the two
// when it starts again.
func TestKilledWhileStoring(t *testing.T) {
	for name, state := range map[string]struct {
		links []string // besides the dated file
		half  bool     // of the new file is written
		want  int64    // certificate
	}{
		"before the file is complete": {[]string{"current"}, true, 1},
		"before the link":             {[]string{"current"}, false, 1},
		"before the old link goes":    {[]string{"current", "updated"}, false, 1},
		"between the links":           {[]string{"updated"}, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.start()
				n.requested("before the kill", 1)
				n.end()
				old, err := os.Readlink(n.newest())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				n.authority.requests = append(n.authority.requests, nil) // so that the serial is 2
				cert, key := n.authority.pair()
				contents := slices.Concat(cert, key)
				if state.half {
					contents = contents[:len(contents)/2]
				}
				file := filepath.Join(n.directory, servingName+"-2000-01-01-01-00-00.pem")
				write(t, file, contents)
				if err := os.Remove(n.newest()); err != nil {
					t.Fatal(err)
				}
				for _, link := range state.links {
					target := map[string]string{"current": old, "updated": file}[link]
					if err := os.Symlink(target, filepath.Join(n.directory, servingName+"-"+link+".pem")); err != nil {
						t.Fatal(err)
					}
				}
				n.start()
				if got := n.serial(); got != state.want {
					t.Errorf("certificate %d is shown, want %d", got, state.want)
				}
				time.Sleep(lifetime)
				if got := n.serial(); got != 3 {
					t.Errorf("the next is certificate %d", got)
				}
				if left, err := filepath.Glob(filepath.Join(n.directory, "*updated*")); err != nil || len(left) > 0 {
					t.Errorf("%v is left, error %v", left, err)
				}
			})
		})
	}
}

func write(t *testing.T, path string, contents []byte) {
	t.Helper()
	if err := os.WriteFile(path, contents, 0o600); err != nil {
		t.Fatal(err)
	}
}
