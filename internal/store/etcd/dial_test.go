package etcd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// TestUnreachableEtcdIsReported checks that an external etcd that does not
// answer is reported with its address, and that the client reconnects by
// itself.
func TestUnreachableEtcdIsReported(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "etcd") // short enough for a unix socket in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	run := func() (end func()) {
		server, err := Embed(t.Context(), Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	end := run()
	address := "unix://" + filepath.Join(dir, "etcd.sock")
	s, err := Dial(Endpoints{URLs: []string{address}}, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "/kept", []byte("a"), 0); err != nil {
		t.Fatal(err)
	}
	end()
	if err := s.check(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd at "+address+" does not answer") {
		t.Errorf("while etcd does not answer: %v", err)
	}
	end = run()
	defer end()
	for err = s.check(t.Context()); err != nil && t.Context().Err() == nil; {
		err = s.check(t.Context())
	}
	if _, err := s.Get(t.Context(), "/kept"); err != nil {
		t.Errorf("after etcd was restarted: %v", err)
	}
}
