package apiserver_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/utils/clock"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
)

// lateStore is a store whose watches deliver the role bindings of the cluster, and all that
// follows, only once delivered is closed.
type lateStore struct {
	*mem.Store
	delivered chan struct{}
}

// Watch implements store.Store.
func (s lateStore) Watch(ctx context.Context, prefix string, after int64) <-chan store.Batch {
	batches := make(chan store.Batch)
	go func() {
		defer close(batches)
		for batch := range s.Store.Watch(ctx, prefix, after) {
			if slices.ContainsFunc(batch.Events, func(e store.Event) bool { return strings.Contains(e.Key, "/clusterrolebindings/") }) {
				select {
				case <-s.delivered:
				case <-ctx.Done():
				}
			}
			select {
			case batches <- batch:
			case <-ctx.Done():
			}
		}
	}()
	return batches
}

// A server is ready only once its cache shows the default roles that it has stored. Components
// that start then are not refused.
func TestReadyWithDefaultRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flags := commandLine(t, "--service-cluster-ip-range=10.96.0.0/16", "--advertise-address=127.0.0.1")
		keys, err := pki.Open(t.TempDir(), clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		late := lateStore{mem.New(), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		api, err := apiserver.New(ctx, flags, late, keys)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- api.Run(ctx, nil) }()
		synctest.Wait()
		select {
		case <-api.Ready():
			t.Error("the server is ready before its cache shows the default roles")
		default:
		}
		close(late.delivered)
		<-api.Ready()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
