package encrypt

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
)

func provider(name, key string) string {
	return fmt.Sprintf("  - %s:\n      keys:\n      - name: %s\n        secret: %s\n", name, key, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(key, 32)[:32])))
}

func writeConfig(t *testing.T, path string, providers ...string) {
	t.Helper()
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" + strings.Join(providers, "")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

const identity = "  - identity: {}\n"

func TestProviders(t *testing.T) {
	for _, name := range []string{"aesgcm", "aescbc", "secretbox"} {
		t.Run(name, func(t *testing.T) {
			below := mem.New()
			file := filepath.Join(t.TempDir(), "config.yaml")
			writeConfig(t, file, provider(name, "one"), identity)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e, err := New(ctx, below, Config{File: file, Resources: map[string]schema.GroupResource{"secrets": {Resource: "secrets"}, "configmaps": {Resource: "configmaps"}}})
			if err != nil {
				t.Fatal(err)
			}
			const secret, open = "/registry/secrets/web/s", "/registry/configmaps/web/c"
			plain := []byte("a password")
			revision, err := e.Create(ctx, secret, plain, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Create(ctx, open, plain, 0); err != nil {
				t.Fatal(err)
			}
			raw, err := below.Get(ctx, secret)
			if err != nil || !bytes.HasPrefix(raw.Value, []byte("k8s:enc:"+name+":v1:one:")) || bytes.Contains(raw.Value, plain) {
				t.Errorf("stored %q, %v", raw.Value, err)
			}
			if raw, _ := below.Get(ctx, open); !bytes.Equal(raw.Value, plain) {
				t.Errorf("a resource that is not named was stored as %q", raw.Value)
			}
			if got, err := e.Get(ctx, secret); err != nil || !bytes.Equal(got.Value, plain) {
				t.Errorf("%q, %v", got.Value, err)
			}
			if page, err := e.List(ctx, "/registry/secrets/", store.ListOptions{}); err != nil || !bytes.Equal(page.Items[0].Value, plain) {
				t.Errorf("%v, %v", page, err)
			}
			for batch := range e.Watch(ctx, "/registry/", revision-1) {
				if batch.Err != nil {
					t.Fatal(batch.Err)
				}
				if len(batch.Events) > 0 {
					if !bytes.Equal(batch.Events[0].Value, plain) {
						t.Errorf("watched %q", batch.Events[0].Value)
					}
					break
				}
			}

			// The new key is first. The old one still decrypts existing values.
			writeConfig(t, file, provider(name, "two"), provider(name, "one"))
			if err := e.reload(ctx); err != nil {
				t.Fatal(err)
			}
			if got, err := e.Get(ctx, secret); err != nil || !bytes.Equal(got.Value, plain) || !got.Outdated {
				t.Errorf("after the rotation: %q, outdated %v, %v", got.Value, got.Outdated, err)
			}
			if _, err := e.Update(ctx, secret, plain, revision, 0); err != nil {
				t.Fatal(err)
			}
			if got, err := e.Get(ctx, secret); err != nil || got.Outdated {
				t.Errorf("after the write: outdated %v, %v", got.Outdated, err)
			}
			if raw, _ := below.Get(ctx, secret); !bytes.HasPrefix(raw.Value, []byte("k8s:enc:"+name+":v1:two:")) {
				t.Errorf("after the rotation stored %q", raw.Value)
			}

			// An invalid file does not change the configuration.
			if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := e.reload(ctx); err == nil {
				t.Error("a broken file was accepted")
			}
			if got, err := e.Get(ctx, secret); err != nil || !bytes.Equal(got.Value, plain) {
				t.Errorf("%q, %v", got.Value, err)
			}
		})
	}
}
