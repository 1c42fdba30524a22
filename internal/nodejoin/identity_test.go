package nodejoin

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// A node without an identity has nothing to renew, and keeps no token.
func TestRenewWithoutAnIdentity(t *testing.T) {
	f := Files(t.TempDir())
	if err := os.WriteFile(f.bootstrap(), []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Renew(t.Context(), "n"); err == nil {
		t.Error("a node without an identity renews it")
	}
	if _, err := os.Stat(f.bootstrap()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the token of a request that was killed is left: %v", err)
	}
	if _, err := f.Config(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the configuration without an identity: %v", err)
	}
}
