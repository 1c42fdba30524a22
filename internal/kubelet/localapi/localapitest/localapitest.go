// Package localapitest runs servers of package localapi in tests.
package localapitest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// Dir returns a new directory for a socket, which the end of the test removes. Its path
// is short, because that of a socket has at most 107 bytes.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localapi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.OS{}.RemoveAll(dir) })
	return dir
}

// Serve calls run, which serves until its context ends at the end of the test, and
// returns a connection to the socket of that name in dir. Requests that wait for it to
// be ready try every 10 ms.
func Serve(t testing.TB, run func(context.Context), dir, socket string) *grpc.ClientConn {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	connection, err := grpc.NewClient("unix://"+filepath.Join(dir, socket), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}
