package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/component/apiserver"
)

// TestLostKeysAreNotMadeAnew checks that data without its keys are not served
// with new ones.
func TestLostKeysAreNotMadeAnew(t *testing.T) {
	dir := t.TempDir()
	etcd, keys := filepath.Join(dir, "etcd"), filepath.Join(dir, "pki")
	api := apiserver.NewOptions()
	api.Serving.CertDir = keys
	if err := checkKeys(etcd, api); err != nil {
		t.Errorf("a new cluster is refused: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(etcd, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkKeys(etcd, api); err == nil || !strings.Contains(err.Error(), "ca.crt, sa.key") {
		t.Errorf("data without keys: %v, want both files named", err)
	}
	if err := os.Mkdir(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"ca.crt", "sa.key"} {
		if err := os.WriteFile(filepath.Join(keys, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkKeys(etcd, api); err != nil {
		t.Errorf("data with its keys is refused: %v", err)
	}
}
