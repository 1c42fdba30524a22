// Package clustertest runs clusters for tests.
//
// Importing it changes state of the process: of utilruntime.ErrorHandlers in
// k8s.io/apimachinery, only the first handler stays, which logs. The others pause
// after each reported error. In a bubble of testing/synctest, whose clock begins in
// the year 2000, the first pause would last for decades.
package clustertest

import (
	"context"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	_ "github.com/coracle-io/coracle/internal/bubble"
)

// Start runs a cluster until the test ends, and returns once its API server
// answers. The test fails if the cluster does. Start may be called several times
// in a test, and in a bubble of testing/synctest with Options.InProcess.
func Start(t testing.TB, o cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(o)
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-c.APIReady():
	case err := <-ended:
		cancel()
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run a cluster: %v", err)
		}
	})
	return c
}
