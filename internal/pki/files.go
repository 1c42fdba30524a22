package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

const lockName = ".lock"

// lockTimeout bounds the wait for another process that creates keys.
const lockTimeout = 10 * time.Second

// lockDirectory keeps other processes from creating keys in the directory. The
// lock is a file that only its owner can open. A lock of the directory itself
// could be taken by any user that can read it, who could so prevent a start.
func lockDirectory(path string) (unlock func(), err error) {
	lock, err := sharedfile.Acquire(context.Background(), filepath.Join(path, lockName), sharedfile.Holder{PID: os.Getpid()}, lockTimeout)
	if err != nil {
		return nil, fmt.Errorf("lock the keys: %w", err)
	}
	return func() { _ = lock.Release() }, nil // an error leaves nothing to do
}

// Shared returns the names of the files that several servers of a cluster have in
// common. This package creates those that are missing, and leaves the others as they
// are.
func Shared() []string {
	files := []string{"sa.key", "sa.pub"}
	for _, authority := range []string{ClusterAuthority, FrontProxyAuthority, EtcdAuthority} {
		files = append(files, authority+".crt", authority+".key")
	}
	return files
}

// Files returns the names of the files that this package creates in a
// directory, as patterns of path.Match.
func Files() []string {
	identities := []Profile{Admin(), ControllerManager(), Scheduler(), KubeProxy(), DNS()}
	var pairs []string
	for _, p := range append(identities, Node("*"), Kubelet("*", nil, nil),
		APIServer("", nil, nil), APIServerKubeletClient(), FrontProxyClient(),
		EtcdServer("*", nil, nil), EtcdPeer("*", nil, nil), EtcdClient(),
		Component("kube-controller-manager"), Component("kube-scheduler"),
	) {
		pairs = append(pairs, p.Name)
	}
	files := append(Shared(), lockName, "kubelet.kubeconfig")
	for _, p := range identities {
		files = append(files, p.Name+".kubeconfig")
	}
	for _, name := range pairs {
		files = append(files, name+".crt", name+".key")
	}
	return files
}

// checkOwners refuses a directory, and keys and certificates in it, that other
// users could have written: the holder of the authority's key can be any user.
// Files may be symbolic links, such as the files of a mounted secret.
func checkOwners(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if err := sharedfile.CheckOwner(dir, info); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".key" && ext != ".crt" && ext != ".pub" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = sharedfile.CheckOwner(path, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// restrictModes makes keys and kubeconfigs in a directory accessible to their
// owner alone. They may have been copied there with other modes.
func restrictModes(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".key" && ext != ".kubeconfig" {
			continue
		}
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(filepath.Join(dir, e.Name()), info.Mode().Perm()&0o700)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func newKey(path string, durable bool) (crypto.Signer, error) {
	key, encoded, err := generateKey()
	if err != nil {
		return nil, err
	}
	return key, sharedfile.Replace(path, sharedfile.Content{Data: encoded, Mode: 0o600, Durable: durable})
}

func generateKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der}), nil
}

// readKey reads a private key of any kind that TLS and tokens can use.
func readKey(path string) (crypto.Signer, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseKey(path, content)
}

// parseKey is readKey for the content of a file.
func parseKey(path string, content []byte) (crypto.Signer, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): restore it from a copy; nothing that was signed with another key is trusted", path, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a %T cannot sign", path, parsed)
	}
	return key, nil
}

// readCertificate reads the first certificate of a PEM file.
func readCertificate(path string) (*x509.Certificate, []byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	cert, err := parseCertificate(path, content)
	return cert, content, err
}

// parseCertificate returns the first certificate in the content of a PEM file.
func parseCertificate(path string, content []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no PEM certificate: restore it from a copy", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): restore it from a copy", path, err)
	}
	return cert, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func sameKey(cert *x509.Certificate, key crypto.Signer) bool {
	a, errA := x509.MarshalPKIXPublicKey(cert.PublicKey)
	b, errB := x509.MarshalPKIXPublicKey(key.Public())
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
