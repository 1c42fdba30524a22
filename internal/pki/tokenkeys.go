package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// keptTokenKeys is how many former keys Rotate leaves in sa.pub.
const keptTokenKeys = 3

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

// Current returns the keys as they are now.
func (k *TokenKeys) Current() *KeySet { return k.current.Load() }

// ReadTokenKeys reads keys from files of others, once: the private key that
// signs, and files of public or private keys that verify besides it.
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
		if !readablePublicKeys(base + ".pub") { // it follows from the other
			if err := writePublicKeys(base+".pub", []crypto.PublicKey{key.Public()}); err != nil {
				return nil, err
			}
		}
	default:
		return nil, err
	}
	return k, k.load()
}

// readablePublicKeys is false for a file that is missing or damaged.
func readablePublicKeys(path string) bool {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true // reading it again says why
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

// Rotate signs with a new key from now on. Tokens of the former keys stay
// good. Other servers on a copy of the directory must have sa.pub before they
// are shown tokens of the new key.
func (k *TokenKeys) Rotate() error {
	key, encoded, err := generateKey()
	if err != nil {
		return err
	}
	public := append([]crypto.PublicKey{key.Public()}, k.Current().Verification...)
	if len(public) > keptTokenKeys+1 {
		public = public[:keptTokenKeys+1]
	}
	// The public half comes first: a crash in between leaves a key that is accepted but unused.
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
