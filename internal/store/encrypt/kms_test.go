package encrypt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
)

// plugin is a KMS v2 plugin. It encrypts by adding the first byte of the key to
// each byte.
type plugin struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	t      *testing.T
	socket string

	mu     sync.Mutex // guards the following
	keyID  string
	server *grpc.Server
}

func (p *plugin) key() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keyID
}

func (p *plugin) Status(context.Context, *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	return &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: p.key()}, nil
}

func (p *plugin) Encrypt(_ context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	return &kmsapi.EncryptResponse{Ciphertext: shift(r.Plaintext, p.key(), 1), KeyId: p.key()}, nil
}

func (p *plugin) Decrypt(_ context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	return &kmsapi.DecryptResponse{Plaintext: shift(r.Ciphertext, r.KeyId, -1)}, nil
}

func shift(data []byte, key string, by int) []byte {
	out := bytes.Clone(data)
	for i := range out {
		out[i] += byte(by * int(key[len(key)-1]))
	}
	return out
}

func (p *plugin) start() {
	p.t.Helper()
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		p.t.Fatal(err)
	}
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, p)
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

func (p *plugin) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server.Stop()
}

func (p *plugin) rotate(keyID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keyID = keyID
}

const (
	// kmsTimeout is longer than the time for which the last status of a plugin
	// is trusted.
	kmsTimeout = 3 * time.Minute
	ofSecrets  = "/registry/secrets/web/"
)

func open(t *testing.T, below store.Store, file string) *Store {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	e, err := New(ctx, below, Config{File: file, Resources: map[string]schema.GroupResource{"secrets": {Resource: "secrets"}}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, kmsTimeout, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatal("timed out waiting for " + what)
	}
}

// sealedBy reports whether a stored value contains a key ID, which is not
// encrypted.
func sealedBy(t *testing.T, below store.Store, key, keyID string) bool {
	t.Helper()
	kv, err := below.Get(t.Context(), key)
	if err != nil || !bytes.HasPrefix(kv.Value, []byte("k8s:enc:kms:v2:local:")) {
		t.Fatalf("%q %v", kv.Value, err)
	}
	return bytes.Contains(kv.Value, []byte(keyID))
}

// TestKMS checks encryption by a KMS v2 plugin, the rotation of its key, and
// reads while it does not answer.
func TestKMS(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "kms") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &plugin{t: t, socket: filepath.Join(dir, "s"), keyID: "key-1"}
	p.start()
	defer p.stop()
	file := filepath.Join(dir, "config.yaml")
	writeConfig(t, file, fmt.Sprintf("  - kms: {apiVersion: v2, name: local, endpoint: 'unix://%s', timeout: 10s}\n", p.socket), identity)
	below, ctx, plain := mem.New(), t.Context(), []byte("a password")

	e := open(t, below, file)
	if err := e.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Create(ctx, ofSecrets+"a", plain, 0); err != nil {
		t.Fatal(err)
	}
	if !sealedBy(t, below, ofSecrets+"a", "key-1") {
		t.Error("not sealed by the plugin's key")
	}
	// A server that was just started has no cached keys and must call the plugin.
	restarted := open(t, below, file)
	if kv, err := restarted.Get(ctx, ofSecrets+"a"); err != nil || !bytes.Equal(kv.Value, plain) {
		t.Fatalf("after a restart: %q %v", kv.Value, err)
	}

	p.stop()
	eventually(t, "the health check to fail", func() bool { return restarted.Check(ctx) != nil })
	if kv, err := restarted.Get(ctx, ofSecrets+"a"); err != nil || !bytes.Equal(kv.Value, plain) {
		t.Fatalf("a value that was decrypted before: %q %v", kv.Value, err)
	}
	late := open(t, below, file)
	if _, err := late.List(ctx, ofSecrets, store.ListOptions{}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("without the plugin: %v", err)
	}
	if _, err := late.Create(ctx, ofSecrets+"none", plain, 0); err == nil {
		t.Fatal("sealed without a plugin")
	}

	p.rotate("key-2")
	p.start()
	eventually(t, "the health check to succeed", func() bool { return restarted.Check(ctx) == nil && late.Check(ctx) == nil })
	for _, s := range []*Store{restarted, late} {
		if page, err := s.List(ctx, ofSecrets, store.ListOptions{}); err != nil || len(page.Items) != 1 || !bytes.Equal(page.Items[0].Value, plain) {
			t.Fatalf("after the recovery: %v %v", page, err)
		}
	}
	if _, err := restarted.Create(ctx, ofSecrets+"b", plain, 0); err != nil {
		t.Fatal(err)
	}
	if !sealedBy(t, below, ofSecrets+"b", "key-2") || !sealedBy(t, below, ofSecrets+"a", "key-1") {
		t.Error("only new values should be sealed by the new key")
	}
}

// TestMissingKey checks that a value whose key is not configured is returned
// encrypted, that other values can be read, and that a configuration with the key
// ends the watches, so that all values are read again.
func TestMissingKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeConfig(t, file, provider("aesgcm", "one"))
	below, ctx, plain := mem.New(), t.Context(), []byte("a password")
	if _, err := open(t, below, file).Create(ctx, ofSecrets+"a", plain, 0); err != nil {
		t.Fatal(err)
	}
	writeConfig(t, file, provider("aesgcm", "two"))
	e := open(t, below, file)
	if _, err := e.Create(ctx, ofSecrets+"b", plain, 0); err != nil {
		t.Fatal(err)
	}
	page, err := e.List(ctx, ofSecrets, store.ListOptions{})
	if err != nil || len(page.Items) != 2 || !strings.HasPrefix(string(page.Items[0].Value), "k8s:enc:") || !bytes.Equal(page.Items[1].Value, plain) {
		t.Fatalf("%v %v", page, err)
	}
	watch := e.Watch(ctx, "/registry/", page.Revision)
	writeConfig(t, file, provider("aesgcm", "two"), provider("aesgcm", "one"))
	if err := e.reload(ctx); err != nil {
		t.Fatal(err)
	}
	for batch := range watch {
		if len(batch.Events) == 0 && batch.Err == nil {
			continue
		}
		if !errors.Is(batch.Err, store.ErrCompacted) {
			t.Fatalf("%+v", batch)
		}
	}
	if kv, err := e.Get(ctx, ofSecrets+"a"); err != nil || !bytes.Equal(kv.Value, plain) {
		t.Fatalf("%q %v", kv.Value, err)
	}
}

// TestCustomResources checks the encryption of custom resources, by name and by
// wildcard.
func TestCustomResources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [boats.example.com, '*.example.org']\n  providers:\n" + provider("aesgcm", "one")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	below := mem.New()
	e := open(t, below, file)
	for key, sealed := range map[string]bool{"/registry/example.com/boats/a/b": true, "/registry/example.com/oars/a/b": false, "/registry/example.org/oars/a/b": true, ofSecrets + "a": false} {
		if _, err := e.Create(t.Context(), key, []byte("plain"), 0); err != nil {
			t.Fatal(err)
		}
		kv, err := below.Get(t.Context(), key)
		if err != nil || strings.HasPrefix(string(kv.Value), "k8s:enc:") != sealed {
			t.Errorf("%s: %q %v", key, kv.Value, err)
		}
	}
}
