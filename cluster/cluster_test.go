package cluster

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coracle-io/coracle/internal/leaktest"
	"github.com/coracle-io/coracle/test/mark"
)

func TestMain(m *testing.M) { os.Exit(mark.Main(m)) }

// A control plane that cannot start ends its node too, which would wait for
// the API server forever.
func TestAClusterWithANodeEndsWithItsControlPlane(t *testing.T) {
	defer leaktest.Check(t, goleak.IgnoreCurrent())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	dir := t.TempDir()
	c, err := New(Options{
		DataDir: dir, NodeName: "n1", AdvertiseAddress: net.IPv4(127, 0, 0, 1),
		Ports: Ports{Secure: taken.Addr().(*net.TCPAddr).Port},
		Node:  &NodeOptions{RunDir: dir, ContainerRuntimeEndpoint: "unix://" + dir + "/none.sock"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a taken port is no failure")
		}
	case <-time.After(patience):
		cancel()
		<-ended //nolint:errcheck // that it ends is all that is wanted here
		t.Error("the cluster goes on without its control plane")
	}
}
