package nodejoin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// KeysName is the name of the Secret in kube-system that has the keys of the cluster
// for servers that join, sealed under a CertificateKey.
const KeysName = "coracle-keys"

// CertificateKey opens the keys of a cluster (AES-256-GCM). It is in the line that a
// server joins with, and nowhere else.
type CertificateKey [32]byte

// NewCertificateKey returns a random key.
func NewCertificateKey() CertificateKey {
	var k CertificateKey
	_, _ = rand.Read(k[:]) // it never fails
	return k
}

// ParseCertificateKey returns the key in a text, which has the form of String.
func ParseCertificateKey(text string) (k CertificateKey, ok bool) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(k) {
		return k, false
	}
	return CertificateKey(raw), true
}

// String returns the key in hexadecimal digits.
func (k CertificateKey) String() string { return hex.EncodeToString(k[:]) }

// seal encrypts a file. Its name cannot be changed afterwards.
func (k CertificateKey) seal(name string, content []byte) ([]byte, error) {
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return aead.Seal(nonce, nonce, content, []byte(name)), nil
}

// open decrypts what seal has returned.
func (k CertificateKey) open(name string, sealed []byte) ([]byte, error) {
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	if len(sealed) < aead.NonceSize() {
		return nil, errors.New("it is too short")
	}
	nonce, sealed := sealed[:aead.NonceSize()], sealed[aead.NonceSize():]
	return aead.Open(nil, nonce, sealed, []byte(name))
}

func (k CertificateKey) aead() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// UploadKeys seals the keys in a directory and stores them where servers that join
// find them. They are deleted with the Secret of the token that these join with.
func UploadKeys(ctx context.Context, client kubernetes.Interface, dir string, key CertificateKey, token *v1.Secret) error {
	sealed := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: KeysName, Namespace: metav1.NamespaceSystem,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: token.Name, UID: token.UID}},
		},
		Data: map[string][]byte{},
	}
	for _, name := range pki.Shared() {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			sealed.Data[name], err = key.seal(name, content)
		}
		if err != nil {
			return fmt.Errorf("read the keys of the cluster: %w", err)
		}
	}
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	_, err := secrets.Create(ctx, sealed, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // those of a former token, under another key
		_, err = secrets.Update(ctx, sealed, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", metav1.NamespaceSystem, KeysName, err)
	}
	role, binding := readKeys()
	if _, err := client.RbacV1().Roles(role.Namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Role %s: %w", role.Name, err)
	}
	if _, err := client.RbacV1().RoleBindings(binding.Namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create RoleBinding %s: %w", binding.Name, err)
	}
	return nil
}

// readKeys returns what lets machines that join read the sealed keys.
func readKeys() (*rbacv1.Role, *rbacv1.RoleBinding) {
	return reader(metav1.ObjectMeta{Name: "coracle:keys", Namespace: metav1.NamespaceSystem},
		"secrets", KeysName, []string{"get"}, group(bootstraptoken.DefaultGroup))
}

// Keys are the files that all servers of a cluster have, by name (pki.Shared).
type Keys map[string][]byte

// DownloadKeys returns the keys that UploadKeys has stored.
func DownloadKeys(ctx context.Context, client kubernetes.Interface, key CertificateKey) (Keys, error) {
	const place = metav1.NamespaceSystem + "/" + KeysName
	sealed, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, KeysName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("the cluster has no keys for servers now (Secret %s): run coracle token create --control-plane on one of its servers, and join with the line that it prints: %w", place, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", place, err)
	}
	keys := Keys{}
	for _, name := range pki.Shared() {
		if keys[name], err = key.open(name, sealed.Data[name]); err != nil {
			return nil, fmt.Errorf("--certificate-key does not open %s in Secret %s: a later coracle token create --control-plane has written it anew, or the key is wrong: %w", name, place, err)
		}
	}
	return keys, nil
}

// Write writes the keys into a directory, which it makes if it is missing. Only this
// user can read them.
func (k Keys) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range k {
		if err := sharedfile.Replace(filepath.Join(dir, name), sharedfile.Content{Data: content, Mode: 0o600, Durable: true}); err != nil {
			return err
		}
	}
	return nil
}
