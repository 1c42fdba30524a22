package unixsocket

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDial(t *testing.T) {
	root, err := os.MkdirTemp("", "socket") // the path of a listener has a bound
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	long := filepath.Join(root, strings.Repeat("d", 100))
	if err := os.Mkdir(long, 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(root, "a.sock"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("here"))
			_ = conn.Close()
		}
	}()
	defer func() { _ = listener.Close() }()
	if err := os.Symlink(filepath.Join(root, "a.sock"), filepath.Join(long, "a.sock")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(root, "a.sock"), filepath.Join(long, "a.sock")} {
		conn, err := Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "here" || err != nil {
			t.Errorf("%s says %q, %v", path, got, err)
		}
		_ = conn.Close()
	}
	for _, path := range []string{filepath.Join(long, "b.sock"), filepath.Join(root, strings.Repeat("n", 110), "a.sock")} {
		if _, err := Dial(t.Context(), path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
