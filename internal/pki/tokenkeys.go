package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/util/keyutil"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// formerTokenKeys is how many former keys Rotate keeps in sa.pub.
const formerTokenKeys = 3

// TokenKeys sign and verify service account tokens. Tokens are signed with
// one key (sa.key) and accepted from several (sa.pub), so that tokens outlive
// a rotation of the key.
type TokenKeys struct {
	base    string
	current atomic.Pointer[KeySet]
	read    time.Time // modification time of sa.pub when it was read
}

// KeySet is the state of TokenKeys at one moment.
type KeySet struct {
	Signing      crypto.Signer
	Verification []crypto.PublicKey // the signing key's public half first
}

// Current returns the current keys.
func (k *TokenKeys) Current() *KeySet { return k.current.Load() }

// ReadTokenKeys reads keys from files that the user maintains, without watching
// them: the private key that signs tokens, and files of further public or
// private keys that verify them.
func ReadTokenKeys(signing string, verification ...string) (*TokenKeys, error) {
	key, err := readKey(signing)
	if err != nil {
		return nil, err
	}
	set := newKeySet(key)
	for _, file := range verification {
		public, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, err
		}
		set.accept(public...)
	}
	k := &TokenKeys{}
	k.current.Store(set)
	return k, nil
}

func newKeySet(signing crypto.Signer) *KeySet {
	return &KeySet{Signing: signing, Verification: []crypto.PublicKey{signing.Public()}}
}

// accept adds keys that are not there yet.
func (s *KeySet) accept(keys ...any) {
	for _, key := range keys {
		if !slices.ContainsFunc(s.Verification, func(known crypto.PublicKey) bool { return equalKeys(known, key) }) {
			s.Verification = append(s.Verification, key)
		}
	}
}

func openTokenKeys(base string) (*TokenKeys, error) {
	k := &TokenKeys{base: base}
	key, err := readKey(base + ".key")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if key, err = newKey(base+".key", true); err != nil {
			return nil, err
		}
		fallthrough
	case err == nil:
		if !readablePublicKeys(base + ".pub") { // derived from sa.key
			if err := writePublicKeys(base+".pub", []crypto.PublicKey{key.Public()}); err != nil {
				return nil, err
			}
		}
	default:
		return nil, err
	}
	return k, k.load()
}

// readablePublicKeys reports whether a file is neither missing nor damaged.
func readablePublicKeys(path string) bool {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true // load returns the error
	}
	_, err = keyutil.ParsePublicKeysPEM(content)
	return err == nil
}

func (k *TokenKeys) load() error {
	key, err := readKey(k.base + ".key")
	if err != nil {
		return err
	}
	content, err := os.ReadFile(k.base + ".pub")
	if err != nil {
		return err
	}
	parsed, err := keyutil.ParsePublicKeysPEM(content)
	if err != nil {
		return fmt.Errorf("%s.pub: %w", k.base, err)
	}
	set := newKeySet(key)
	set.accept(parsed...)
	if info, err := os.Stat(k.base + ".pub"); err == nil {
		k.read = info.ModTime()
	}
	k.current.Store(set)
	return nil
}

func (k *TokenKeys) reload() error {
	info, err := os.Stat(k.base + ".pub")
	if err != nil || info.ModTime().Equal(k.read) {
		return err
	}
	return k.load()
}

// Rotate creates a new signing key. Tokens of the former keys stay valid. Other
// servers with a copy of the directory need the new sa.pub before they can
// verify tokens of the new key.
func (k *TokenKeys) Rotate() error {
	key, encoded, err := generateKey()
	if err != nil {
		return err
	}
	public := append([]crypto.PublicKey{key.Public()}, k.Current().Verification...)
	if len(public) > formerTokenKeys+1 {
		public = public[:formerTokenKeys+1]
	}
	// The public key is written first: a crash in between leaves an unused key.
	if err := writePublicKeys(k.base+".pub", public); err != nil {
		return err
	}
	if err := sharedfile.Replace(k.base+".key", sharedfile.Content{Data: encoded, Mode: 0o600, Durable: true}); err != nil {
		return err
	}
	return k.load()
}

func writePublicKeys(path string, keys []crypto.PublicKey) error {
	var content bytes.Buffer
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			return err
		}
		if err := pem.Encode(&content, &pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der}); err != nil {
			return err
		}
	}
	return sharedfile.Replace(path, sharedfile.Content{Data: content.Bytes(), Mode: 0o644, Durable: true})
}

func equalKeys(a, b crypto.PublicKey) bool {
	e, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && e.Equal(b)
}

// TokenAlgorithm returns the algorithm by which a key signs service account tokens.
func TokenAlgorithm(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := public.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("service account key: must be RSA or ECDSA (P-256, P-384, P-521), is %T", public)
}
