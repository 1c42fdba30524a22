package pki

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	testingclock "k8s.io/utils/clock/testing"
)

// A node's certificate and authority are read again when they are renewed, and
// stay as they were while the files cannot be read.
func TestReloadingFiles(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	keys, err := Open(t.TempDir(), clock)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "node")
	issued, err := keys.Issue(Kubelet("n", nil, nil).In(dir, "kubelet-serving"))
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Publish(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	cert, key := issued.Files()
	serve, err := ReloadingCertificate(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := ReloadingAuthority(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	valid := func() {
		t.Helper()
		pair, err := serve(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if !leaf.Equal(issued.Leaf()) {
			t.Errorf("serving with a certificate that ends at %v, the newest ends at %v", leaf.NotAfter, issued.Leaf().NotAfter)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: trust(), CurrentTime: clock.Now()}); err != nil {
			t.Error(err)
		}
		if !trust().Equal(keys.Cluster().Pool()) {
			t.Error("the authority trusted is not the newest")
		}
	}
	valid()
	before := issued.Leaf()
	touch(t, cert, clock.Now().Add(-time.Hour))
	if pair, err := serve(nil); err != nil || pair == nil {
		t.Fatalf("%v, %v", pair, err)
	}
	clock.Step(authorityLifetime - 24*time.Hour) // all are due
	if err := keys.check(logr.Discard()); err != nil {
		t.Fatal(err)
	}
	touch(t, cert, clock.Now())
	touch(t, filepath.Join(dir, "ca.crt"), clock.Now())
	if issued.Leaf().Equal(before) {
		t.Fatal("the certificate was not renewed")
	}
	valid()
	for _, file := range []string{cert, filepath.Join(dir, "ca.crt")} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		touch(t, file, clock.Now().Add(time.Hour))
		valid()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What was forgotten is not renewed, and a directory that is gone stays so.
func TestForget(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	keys, err := Open(t.TempDir(), clock)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	issued := map[string]*Certificate{}
	for _, node := range []string{"gone", "kept"} {
		dir := filepath.Join(root, node)
		if issued[node], err = keys.Issue(Kubelet(node, nil, nil).In(dir, "kubelet-serving")); err != nil {
			t.Fatal(err)
		}
		if err := keys.Publish(filepath.Join(dir, "ca.crt")); err != nil {
			t.Fatal(err)
		}
	}
	gone, kept := issued["gone"].Leaf(), issued["kept"].Leaf()
	if err := os.RemoveAll(filepath.Join(root, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := keys.check(logr.Discard()); err != nil {
		t.Errorf("before it is forgotten: %v", err)
	}
	keys.Forget(filepath.Join(root, "gone"))
	clock.Step(leafLifetime)
	if err := keys.check(logr.Discard()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(root, "gone")); !os.IsNotExist(err) {
		t.Errorf("the directory is there again: %v", err)
	}
	if !issued["gone"].Leaf().Equal(gone) || issued["kept"].Leaf().Equal(kept) {
		t.Error("want the certificate of the one node renewed, and not that of the other")
	}
}

// touch sets the modification time of a file, for file systems with coarse
// times.
func touch(t *testing.T, file string, when time.Time) {
	t.Helper()
	if err := os.Chtimes(file, when, when); err != nil {
		t.Fatal(err)
	}
}
