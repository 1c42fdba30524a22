package ingress

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// The long keys of a namespace take turns, those of two namespaces do not wait for each other,
// and quick ones for none.
func TestLongKeys(t *testing.T) {
	secrets := map[string]*v1.Secret{}
	for _, of := range []struct {
		namespace, name string
		bits            int
	}{{"a", "long", quickRSABits + 1024}, {"a", "other", quickRSABits + 1024}, {"a", "quick", quickRSABits}, {"b", "long", quickRSABits + 1024}} {
		key, err := rsa.GenerateKey(rand.Reader, of.bits)
		if err != nil {
			t.Fatal(err)
		}
		secrets[of.namespace+"/"+of.name] = newSecretOf(t, key, of.namespace, of.name, "a.example")
	}
	c := certificates{secret: func(namespace, name string) *v1.Secret { return secrets[namespace+"/"+name] }}
	boundOf := func(namespace, name string) *signatures {
		t.Helper()
		got, err := c.get(namespace, name)
		if err != nil {
			t.Fatal(err)
		}
		if key, ok := got.PrivateKey.(longKey); ok {
			return key.of
		}
		return nil
	}
	a, b := boundOf("a", "long"), boundOf("b", "long")
	if a == nil || b == nil || a == b || boundOf("a", "other") != a || boundOf("a", "quick") != nil {
		t.Errorf("the keys of a are bounded by %p and %p, that of b by %p", a, boundOf("a", "other"), b)
	}
	c.forget()
	if boundOf("a", "quick"); len(c.signed) != 2 {
		t.Errorf("%d namespaces have long keys, want 2", len(c.signed))
	}
	c.forget() // all but that one, which is of the namespace of others
	if c.forget(); len(c.signed) != 0 {
		t.Errorf("%d namespaces have long keys that nobody uses", len(c.signed))
	}
}

// patientKey signs when it is told to.
type patientKey struct {
	crypto.Signer
	signs   chan struct{}
	running atomic.Int32
}

func (k *patientKey) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	k.running.Add(1)
	<-k.signs
	return nil, nil
}

// Few signatures with a long key are made at a time, and a client for whom there is no room
// does not wait.
func TestSignaturesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		private, of := &patientKey{signs: make(chan struct{})}, newSignatures()
		key, ended := longKey{private, of}, make(chan error, maxSignatures)
		for range maxSignatures {
			go func() {
				_, err := key.Sign(nil, nil, nil)
				ended <- err
			}()
		}
		synctest.Wait()
		if n := int(private.running.Load()); n != cap(of.turns) {
			t.Errorf("%d signatures are made at a time, want %d", n, cap(of.turns))
		}
		if _, err := key.Sign(nil, nil, nil); !errors.Is(err, errBusy) {
			t.Errorf("a signature too many: %v", err)
		}
		close(private.signs)
		for range maxSignatures {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if _, err := key.Sign(nil, nil, nil); err != nil {
			t.Errorf("a signature after all others: %v", err)
		}
	})
}
