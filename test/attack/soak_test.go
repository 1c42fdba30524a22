package attack

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var soak = flag.Duration("attack.soak", 0, "how long TestSoak repeats all attacks; 0 runs a few of them twice")

// Limits on the growth that TestSoak permits between rounds.
const (
	soakHeap       = 30 << 20
	soakMemory     = 50 << 20
	soakGoroutines = 200
)

// round is an attack that TestSoak repeats.
type round struct {
	name   string
	attack func(*testing.T)
}

// shortRounds returns a quick attack of each kind.
func shortRounds() []round {
	return []round{
		{"churn", churn},
		{"secrets", TestSecretsOfOthersAreRefused},
		{"slow headers", TestSlowHeaders},
		{"panics", TestPolicyThatPanicsOnEveryWrite},
	}
}

// longRounds returns all attacks on a control plane that can be repeated.
func longRounds() []round {
	return append(shortRounds(), []round{
		{"bodies", TestEndlessBodiesHoldSeats}, {"streams", TestEndlessStreamsHoldSeats}, {"answers", TestResponsesThatAreNeverRead},
		{"idle connections", TestTenThousandIdleConnections}, {"resets", TestRapidReset}, {"frames", TestFloodsOfControlFrames},
		{"patches", TestPatchAmplification}, {"multiplying bodies", TestBodyAmplification}, {"definitions", TestDefinitionAmplification},
		{"YAML", TestYAMLBombs}, {"webhooks", TestWebhooksThatAnswerGarbage}, {"paths", TestTenantReadsOthersSecretsByPathTricks},
		{"tokens", TestForgedTokensAreRefused}, {"bound tokens", TestTokensEndWithTheirBoundObject}, {"roles", TestRoleEscalationIsRefused},
		{"nodes", TestNodeExceedsItsPods}, {"watchers", TestWatchersThatNeverRead},
	}...)
}

// TestSoak repeats attacks and a load against one control plane and checks that the
// memory and the number of goroutines do not grow.
func TestSoak(t *testing.T) {
	c := controlPlane(t)
	rounds := shortRounds()
	if *soak > 0 {
		rounds = longRounds()
	}
	var heap, memory, goroutines []int64
	begun := time.Now()
	for n := 0; n < 2 || time.Since(begun) < *soak; n++ {
		for _, r := range rounds {
			if !t.Run(fmt.Sprintf("%d/%s", n, r.name), r.attack) {
				return
			}
		}
		memory = append(memory, c.stableMemory(t))
		heap = append(heap, settled(t, heap, soakHeap, func() (int64, error) { return liveHeap(c) }))
		goroutines = append(goroutines, settled(t, goroutines, soakGoroutines, func() (int64, error) { return c.gauge("go_goroutines") }))
		t.Logf("after %v: %d MB, %d of them live heap, %d goroutines", time.Since(begun).Round(time.Second), memory[n]>>20, heap[n]>>20, goroutines[n])
	}
	checkNoGrowth(t, "live heap in bytes", heap, soakHeap)
	if *soak > 0 {
		// After two rounds, the figure depends on when the last collection was,
		// not on the memory that is held.
		checkNoGrowth(t, "memory in bytes", memory, soakMemory)
	}
	checkNoGrowth(t, "goroutines", goroutines, soakGoroutines)
}

// settled returns a figure once it exceeds that of the round before by no more
// than growth. What a round has left may end later on a busy machine, a leak never.
func settled(t *testing.T, before []int64, growth int64, read func() (int64, error)) int64 {
	t.Helper()
	deadline, again := time.NewTimer(waitTimeout), time.NewTicker(time.Second)
	defer deadline.Stop()
	defer again.Stop()
	for {
		now, err := read()
		if err != nil {
			t.Fatal(err)
		}
		if len(before) == 0 || now <= before[len(before)-1]+growth {
			return now
		}
		select {
		case <-deadline.C:
			return now
		case <-again.C:
		}
	}
}

// checkNoGrowth fails the test if the median of the last third of the figures
// exceeds the median of the second third by more than growth. Caches are filled
// during the first third.
func checkNoGrowth(t *testing.T, what string, figures []int64, growth int64) {
	t.Helper()
	third := max(1, len(figures)/3)
	median := func(list []int64) int64 {
		list = slices.Clone(list)
		slices.Sort(list)
		return list[len(list)/2]
	}
	before, after := median(figures[len(figures)-2*third:len(figures)-third]), median(figures[len(figures)-third:])
	if after > before+growth {
		t.Errorf("%s grew from %d to %d: %v", what, before, after, figures)
	}
}

// liveHeap returns the bytes of an API server's heap that a garbage collection
// leaves. What finalizers and pools hold goes with the second one.
func liveHeap(c *cluster) (int64, error) {
	for range 2 {
		if err := c.client.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").Do(context.Background()).Error(); err != nil {
			return 0, err
		}
	}
	return c.gauge("go_memstats_heap_alloc_bytes")
}

// gauge reads one figure of the API server's /metrics.
func (c *cluster) gauge(name string) (int64, error) {
	raw, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(context.Background()).Raw()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if after, ok := strings.CutPrefix(line, name+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(after), 64)
			return int64(value), err
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}

// churn creates objects, watches them and deletes them.
func churn(t *testing.T) {
	c := controlPlane(t)
	ctx := context.Background()
	_, namespace := c.tenant(t, "")
	watch, err := c.client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	const objects = 300
	for i := range objects {
		if _, err := c.client.CoreV1().ConfigMaps(namespace).Create(ctx, &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("churn-%d", i)}, Data: map[string]string{"text": strings.Repeat("x", 4<<10)},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.client.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!kubernetes.io/root-ca"}); err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{}
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for len(gone) < objects {
		select {
		case event, ok := <-watch.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			if object, ok := event.Object.(*v1.ConfigMap); ok && event.Type == "DELETED" && strings.HasPrefix(object.Name, "churn-") {
				gone[object.Name] = true
			}
		case <-deadline.C:
			t.Fatalf("%d of %d deletions were seen", len(gone), objects)
		}
	}
}
