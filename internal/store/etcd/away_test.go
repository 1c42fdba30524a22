package etcd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// An external etcd that is away is told of by its address, and no longer once
// it is back on the same data; nothing has to be connected anew by hand.
func TestAnEtcdThatIsAwayIsTold(t *testing.T) {
	dir, err := os.MkdirTemp("", "etcd") // whose path leaves room for a unix socket's
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
	if err := s.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "/kept", []byte("a"), 0); err != nil {
		t.Fatal(err)
	}
	end()
	if err := s.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd at "+address+" does not answer") {
		t.Errorf("an etcd that is away: %v", err)
	}
	end = run()
	defer end()
	for err = s.ask(t.Context()); err != nil && t.Context().Err() == nil; {
		err = s.ask(t.Context())
	}
	if _, err := s.Get(t.Context(), "/kept"); err != nil {
		t.Errorf("after it is back: %v", err)
	}
}
