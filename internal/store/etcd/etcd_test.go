package etcd_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
	"github.com/coracle-io/coracle/internal/store/storetest"
	"github.com/coracle-io/coracle/test/mark"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(mark.Tests{M: m}, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun")))
}

// embedded starts an etcd in dir and stops it at the end of the test.
func embedded(t testing.TB, config etcd.Config) *etcd.Embedded {
	t.Helper()
	e, err := etcd.Embed(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return e
}

// shortDir returns a directory with a path that is short enough for a unix socket
// in it.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// The tests that wait, as for the end of a TTL, run beside each other.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) store.Store {
		return embedded(t, etcd.Config{Dir: shortDir(t)})
	})
}

// TestExternal runs the suite over the socket of an embedded etcd.
func TestExternal(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) store.Store {
		dir := shortDir(t)
		embedded(t, etcd.Config{Dir: dir})
		e, err := etcd.Dial(etcd.Endpoints{URLs: []string{"unix://" + filepath.Join(dir, "etcd.sock")}}, klog.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	})
}
