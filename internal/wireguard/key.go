package wireguard

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

// maxKeyFile bounds the file of a private key, in bytes.
const maxKeyFile = 1 << 10

// LoadKey returns the private key in a file, in base64 as wg(8) has it. If there is no
// file, it makes a key and writes it, so that only this user can read it.
func LoadKey(path string) (*ecdh.PrivateKey, error) {
	text, err := sharedfile.ReadOwn(path, maxKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the private key of WireGuard: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, notAKey(path, err)
	}
	key, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		return nil, notAKey(path, err)
	}
	return key, nil
}

func notAKey(path string, err error) error {
	return fmt.Errorf("%s has no private key of WireGuard (%w): remove it, and the node makes another one", path, err)
}

func makeKey(path string) (*ecdh.PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		text := base64.StdEncoding.EncodeToString(key.Bytes()) + "\n"
		err = sharedfile.Replace(path, sharedfile.Content{Data: []byte(text), Mode: 0o600, Durable: true})
	}
	if err != nil {
		return nil, fmt.Errorf("make a private key of WireGuard: %w", err)
	}
	return key, nil
}
