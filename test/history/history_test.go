package history

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

var (
	seed       = flag.Uint64("history.seed", 1, "seed of the random choices")
	operations = flag.Int64("history.operations", 10_000, "operations in a run")
	soak       = flag.Duration("history.soak", 0, "how long to repeat the test with random seeds; 0 skips it")
)

const (
	writers  = 12
	watchers = 6
	keys     = 10
	// timeout limits the time until watchers see the last write.
	timeout = 3 * time.Minute
)

// The tests run beside each other: each has processes of its own, and waits for them.
func TestOneServer(t *testing.T) {
	t.Parallel()
	run(t, 1, *seed)
}

func TestTwoServers(t *testing.T) {
	t.Parallel()
	run(t, 2, *seed)
}

// TestSoak runs with different seeds for the duration of -history.soak. The name of
// a subtest contains its seed.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("-history.soak is not set")
	}
	for begin := time.Now(); time.Since(begin) < *soak && !t.Failed(); {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { run(t, 1+int(seed%2), seed) })
	}
}

func run(t *testing.T, servers int, seed uint64) {
	t.Logf("seed %d, %d API servers", seed, servers)
	c := startCluster(t, servers)
	w := &workload{seed: seed, urls: c.urls, begin: time.Now()}
	w.left.Store(*operations)

	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	var follow sync.WaitGroup
	for n := range watchers {
		follow.Go(func() {
			if err := w.follow(watching, n); err != nil {
				t.Error(err)
			}
		})
	}
	killing, stopKilling := context.WithCancel(context.Background())
	var chaos sync.WaitGroup
	chaos.Go(func() { c.chaos(killing, t, seed) })
	var write sync.WaitGroup
	for n := range writers {
		write.Go(func() { w.write(n, keys) })
	}
	write.Wait()
	stopKilling()
	chaos.Wait()
	timer := time.AfterFunc(timeout, stopWatching)
	defer timer.Stop()
	w.finish(t, watching)
	follow.Wait()

	h := readEtcd(t, c.etcd.dir)
	h.checkWrites(t, w.done)
	lists := h.checkLists(t, w.done)
	events := h.checkWatches(t, w.watched)
	h.checkLinearizable(t, w.done, keys)
	outcomes := map[int]int{}
	for _, op := range w.done {
		outcomes[op.code]++
	}
	t.Logf("%d operations in %s (by answer: %v), %d lists and %d watch events in %d segments compared with %d writes",
		len(w.done), time.Since(w.begin).Round(time.Millisecond), outcomes, lists, events, len(w.watched), len(h.events))
}

// finish makes the last write, which all watchers wait for.
func (w *workload) finish(t *testing.T, ctx context.Context) {
	server := newAPI(w.urls[0])
	for ctx.Err() == nil {
		if _, code := server.create(last, last); code == http.StatusCreated || code == http.StatusConflict {
			return
		}
		pause(ctx)
	}
	t.Error("the servers did not recover")
}

// chaos kills and restarts one process at a time.
func (c *cluster) chaos(ctx context.Context, t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1<<32))
	kills := map[string]int{}
	for {
		select {
		case <-ctx.Done():
			t.Log(fmt.Sprint("killed ", kills))
			return
		case <-time.After(time.Duration(50+random.IntN(250)) * time.Millisecond):
		}
		victims := append([]*process{c.etcd}, c.servers...)
		victim := victims[random.IntN(len(victims))]
		kills[victim.role]++
		victim.kill()
		victim.start()
	}
}
