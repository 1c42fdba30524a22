package nodejoin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-io/coracle/internal/pki"
)

// Keys arrive as they were, for those alone who have the key, and go with the token.
func TestKeysAreHandedOver(t *testing.T) {
	client, from, to := fake.NewClientset(), t.TempDir(), filepath.Join(t.TempDir(), "pki")
	token := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef", Namespace: "kube-system", UID: "u"}}
	key := NewCertificateKey()
	if _, err := DownloadKeys(t.Context(), client, key); err == nil || !strings.Contains(err.Error(), "coracle token create --control-plane") {
		t.Errorf("before there are any: %v", err)
	}
	if err := UploadKeys(t.Context(), client, from, key, token); err == nil {
		t.Error("keys that are missing were stored")
	}
	for _, name := range pki.Shared() {
		if err := os.WriteFile(filepath.Join(from, name), []byte("content of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	former := NewCertificateKey()
	for _, k := range []CertificateKey{former, key} {
		if err := UploadKeys(t.Context(), client, from, k, token); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := client.CoreV1().Secrets("kube-system").Get(t.Context(), KeysName, metav1.GetOptions{})
	if err != nil || len(stored.OwnerReferences) != 1 || stored.OwnerReferences[0].UID != "u" || stored.OwnerReferences[0].Kind != "Secret" {
		t.Fatalf("stored is %+v, %v", stored, err)
	}
	for name, content := range stored.Data {
		if bytes.Contains(content, []byte("content")) {
			t.Errorf("%s is readable", name)
		}
	}
	if _, err := DownloadKeys(t.Context(), client, former); err == nil || !strings.Contains(err.Error(), "--certificate-key does not open") {
		t.Errorf("with a former key: %v", err)
	}
	keys, err := DownloadKeys(t.Context(), client, key)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := keys.Write(to); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range pki.Shared() {
		content, err := os.ReadFile(filepath.Join(to, name))
		info, statErr := os.Stat(filepath.Join(to, name))
		if err != nil || statErr != nil || string(content) != "content of "+name || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is %q with %v, %v", name, content, info.Mode(), err)
		}
	}
	stored.Data["ca.key"], stored.Data["sa.key"] = stored.Data["sa.key"], stored.Data["ca.key"]
	if _, err := client.CoreV1().Secrets("kube-system").Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := DownloadKeys(t.Context(), client, key); err == nil {
		t.Error("keys under the names of others were taken")
	}
	for _, object := range []string{"roles", "rolebindings"} {
		found := false
		for _, action := range client.Actions() {
			found = found || action.Matches("create", object)
		}
		if !found {
			t.Errorf("no %s let who joins read them", object)
		}
	}
}

func TestCertificateKey(t *testing.T) {
	key := NewCertificateKey()
	if again, ok := ParseCertificateKey(key.String()); !ok || again != key || key == NewCertificateKey() {
		t.Errorf("%s was read as %s, %v", key, again, ok)
	}
	for _, text := range []string{"", "abc", strings.Repeat("g", 64), strings.Repeat("a", 62), strings.Repeat("a", 66)} {
		if _, ok := ParseCertificateKey(text); ok {
			t.Errorf("%q is a key", text)
		}
	}
	if _, err := key.open("ca.key", []byte("short")); err == nil {
		t.Error("what is too short was opened")
	}
}
