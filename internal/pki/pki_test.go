package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

func open(t *testing.T, dir string) *Directory {
	t.Helper()
	d, err := Open(dir, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func issue(t *testing.T, d *Directory, p Profile) *Certificate {
	t.Helper()
	c, err := d.Issue(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// handshake connects a client to a server and returns the certificates that
// each saw of the other.
func handshake(t *testing.T, server, client *tls.Config) (ofServer, ofClient *x509.Certificate) {
	t.Helper()
	a, b := net.Pipe()
	defer func() { _ = a.Close() }()
	defer func() { _ = b.Close() }()
	s := tls.Server(a, server)
	done := make(chan error, 1)
	go func() { done <- s.Handshake() }()
	client = client.Clone()
	client.ServerName = "kubernetes.default.svc"
	client.MaxVersion = tls.VersionTLS12 // the client's certificate is in the handshake
	c := tls.Client(b, client)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0], s.ConnectionState().PeerCertificates[0]
}

// The clock of the directory passes a day at once: a check every ten minutes would
// read the files 600,000 times.
func TestRenewalsForTwelveYears(t *testing.T) {
	const day = 24 * time.Hour
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		daily := clocktesting.NewFakeClock(time.Now())
		d, err := Open(dir, daily)
		if err != nil {
			t.Fatal(err)
		}
		server := issue(t, d, APIServer("cluster.local", nil, nil))
		admin := issue(t, d, Admin())
		serverConfig, clientConfig := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: server.GetCertificate, ClientAuth: tls.RequestClientCert}, admin.ClientConfig(d.Cluster())
		first, _ := handshake(t, serverConfig, clientConfig)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		synctest.Wait()
		for year := range 12 {
			for range 365 {
				time.Sleep(day) // the clock of the handshakes
				daily.Step(day)
				synctest.Wait()
			}
			now, ofClient := handshake(t, serverConfig, admin.ClientConfig(d.Cluster()))
			if now.Equal(first) {
				t.Fatalf("year %d: the serving certificate is still the first one", year)
			}
			options, _ := d.Cluster().VerifyOptions()
			if _, err := ofClient.Verify(options); err != nil {
				t.Fatalf("year %d: %v", year, err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestRenewalComesInTheLastThird(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := open(t, dir)
		p := Admin()
		p.Lifetime = 90 * time.Hour
		c := issue(t, d, p)
		first := c.Leaf()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(59 * time.Hour)
		synctest.Wait()
		if !c.Leaf().Equal(first) {
			t.Error("renewed before the last third")
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if c.Leaf().Equal(first) {
			t.Error("not renewed in the last third")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRestartKeepsKeys(t *testing.T) {
	dir := t.TempDir()
	one := open(t, dir)
	leaf := issue(t, one, Scheduler()).Leaf()
	two := open(t, dir)
	if !two.Cluster().Certificate().Equal(one.Cluster().Certificate()) {
		t.Error("another authority after the restart")
	}
	if !issue(t, two, Scheduler()).Leaf().Equal(leaf) {
		t.Error("another certificate after the restart")
	}
	if !equalKeys(one.TokenKeys().Current().Signing.Public(), two.TokenKeys().Current().Signing.Public()) {
		t.Error("another token key after the restart")
	}
	for _, key := range []string{"ca.key", "front-proxy-ca.key", "sa.key", "scheduler.key"} {
		info, err := os.Stat(filepath.Join(dir, key))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", key, info.Mode().Perm())
		}
	}
}

func TestIssueReplacesOtherProfile(t *testing.T) {
	d := open(t, t.TempDir())
	leaf := issue(t, d, APIServer("cluster.local", nil, nil)).Leaf()
	if !issue(t, d, APIServer("cluster.local", nil, nil)).Leaf().Equal(leaf) {
		t.Error("replaced without need")
	}
	moved := issue(t, d, APIServer("cluster.local", []string{"node1"}, []net.IP{net.ParseIP("10.96.0.1")})).Leaf()
	if err := moved.VerifyHostname("node1"); err != nil {
		t.Error(err)
	}
	if err := moved.VerifyHostname("10.96.0.1"); err != nil {
		t.Error(err)
	}
}

func TestIncompleteWritesAreRepaired(t *testing.T) {
	dir := t.TempDir()
	issue(t, open(t, dir), Scheduler())
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "scheduler.key"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir)
	options, _ := d.Cluster().VerifyOptions()
	if _, err := issue(t, d, Scheduler()).Leaf().Verify(options); err != nil {
		t.Error(err)
	}
}

func TestForeignAuthorityKeyIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := newKey(filepath.Join(dir, "ca.key"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, clock.RealClock{}); err == nil {
		t.Error("a key that does not belong to ca.crt was accepted")
	}
}

func TestReplacedFileIsLoaded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, other := open(t, dir), open(t, dir)
		c := issue(t, d, Admin())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		replacement := issue(t, other, Admin())
		if err := replacement.issue(time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * checkPeriod)
		synctest.Wait()
		if !c.Leaf().Equal(replacement.Leaf()) {
			t.Error("the replaced file was not read")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRotatedTokenKeysStayAccepted(t *testing.T) {
	dir := t.TempDir()
	keys := open(t, dir).TokenKeys()
	first := keys.Current().Signing.Public()
	if err := keys.Rotate(); err != nil {
		t.Fatal(err)
	}
	set := open(t, dir).TokenKeys().Current()
	if len(set.Verification) != 2 || !equalKeys(set.Verification[1], first) {
		t.Fatalf("%d keys after one rotation", len(set.Verification))
	}
	if equalKeys(set.Signing.Public(), first) {
		t.Error("the signing key did not change")
	}
	for range 2 * formerTokenKeys {
		if err := keys.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(keys.Current().Verification); n != formerTokenKeys+1 {
		t.Errorf("%d keys are accepted", n)
	}
}

// A certificate with more groups than its profile has now is replaced.
func TestCertificateWithExcessPrivilegesIsReplaced(t *testing.T) {
	dir := t.TempDir()
	former := APIServerKubeletClient()
	former.Organization = []string{"system:masters"}
	before := issue(t, open(t, dir), former).Leaf()
	now := issue(t, open(t, dir), APIServerKubeletClient()).Leaf()
	if now.Equal(before) || slices.Contains(now.Subject.Organization, "system:masters") {
		t.Errorf("the API server shows kubelets a certificate of %v", now.Subject.Organization)
	}
	again := issue(t, open(t, dir), APIServerKubeletClient()).Leaf()
	if !again.Equal(now) {
		t.Error("another certificate after the restart")
	}
}

// After the clock was ahead for a while, certificates that are not valid yet are
// replaced.
func TestClockAhead(t *testing.T) {
	for _, jump := range []time.Duration{300 * 24 * time.Hour, 7 * 365 * 24 * time.Hour} {
		c := clocktesting.NewFakeClock(time.Now())
		d, err := Open(t.TempDir(), c)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := d.Issue(Admin())
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []time.Duration{jump, -jump} {
			c.Step(step)
			if err := d.check(klog.Background()); err != nil {
				t.Error(err)
			}
			if err := cert.verify(c.Now()); err != nil {
				t.Errorf("after a step of %v: %v", step, err)
			}
		}
		c.Step(jump)
		if err := d.check(klog.Background()); err != nil {
			t.Error(err)
		}
		c.Step(-jump)
		again, err := Open(d.Path(), c)
		if err != nil {
			t.Fatal(err)
		}
		if cert, err = again.Issue(Admin()); err != nil {
			t.Fatal(err)
		}
		if err := cert.verify(c.Now()); err != nil {
			t.Errorf("opened again after a step of %v and back: %v", jump, err)
		}
	}
}

// The error for a damaged file says what to do. A file that is derived from
// another is written again.
func TestDamagedKeys(t *testing.T) {
	for file, want := range map[string]string{"ca.key": "ca.key is damaged", "ca.crt": "ca.crt holds no PEM certificate", "sa.key": "sa.key is damaged", "sa.pub": ""} {
		dir := t.TempDir()
		if _, err := Open(dir, clock.RealClock{}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), make([]byte, 200), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, clock.RealClock{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "restore it from a copy")) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Open refuses keys that another user could have written.
func TestKeysOfOthersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files to others needs root")
	}
	for what, change := range map[string]func(dir string) error{
		"the directory is another's":  func(dir string) error { return os.Chown(dir, 1234, 1234) },
		"others can write there":      func(dir string) error { return os.Chmod(dir, 0o777) },
		"the authority's key is":      func(dir string) error { return os.Chown(filepath.Join(dir, "ca.key"), 1234, 1234) },
		"others can write the tokens": func(dir string) error { return os.Chmod(filepath.Join(dir, "sa.pub"), 0o666) },
	} {
		dir := t.TempDir()
		if _, err := Open(dir, clock.RealClock{}); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		var foreign *sharedfile.OwnershipError
		if _, err := Open(dir, clock.RealClock{}); !errors.As(err, &foreign) {
			t.Errorf("%s: %v", what, err)
		}
		if _, _, err := ReadAdmin(dir); !errors.As(err, &foreign) {
			t.Errorf("%s, for the admin: %v", what, err)
		}
	}
}

// A certificate that is valid for months is used even if its renewal fails, as
// on a full disk.
func TestFailedRenewalAtStart(t *testing.T) {
	dir := t.TempDir()
	c := clocktesting.NewFakeClock(time.Now())
	d, err := Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Issue(Admin()); err != nil {
		t.Fatal(err)
	}
	c.Step(300 * 24 * time.Hour)
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil { // nothing can be signed
		t.Fatal(err)
	}
	if d, err = Open(dir, c); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Issue(Admin()); err != nil {
		t.Errorf("300 days of 365 old: %v", err)
	}
	c.Step(100 * 24 * time.Hour)
	if d, err = Open(dir, c); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Issue(Admin()); err == nil {
		t.Error("an expired certificate that cannot be renewed is handed out")
	}
}

// A client needs only the certificate and the key of an authority, and leaves no file.
func TestClientConfig(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	server := issue(t, d, EtcdServer("a", []string{"kubernetes.default.svc"}, nil))
	var files [2][]byte
	for i, name := range []string{"etcd-ca.crt", "etcd-ca.key"} {
		var err error
		if files[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	config, err := ClientConfig(files[0], files[1], EtcdClient(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(files[0])
	_, client := handshake(t, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: server.GetCertificate, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted}, config)
	if client.Subject.CommonName != "etcd-client" || len(client.DNSNames)+len(client.IPAddresses) > 0 {
		t.Errorf("the client is %s with %v and %v", client.Subject, client.DNSNames, client.IPAddresses)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "etcd-client*")); err != nil || len(left) > 0 {
		t.Errorf("%q is stored, %v", left, err)
	}
	for _, damaged := range [][2][]byte{{nil, files[1]}, {files[0], nil}} {
		if _, err := ClientConfig(damaged[0], damaged[1], EtcdClient(), time.Now()); err == nil || !strings.Contains(err.Error(), "etcd-ca.") {
			t.Errorf("damaged keys: %v", err)
		}
	}
}
