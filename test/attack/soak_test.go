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

var soak = flag.Duration("attack.soak", 0, "how long TestSoak repeats all attacks; 0 is two rounds of a few")

// Growth from the first rounds to the last that TestSoak permits.
const (
	soakMemory     = 50 << 20
	soakGoroutines = 200
)

// round is an attack that TestSoak repeats.
type round struct {
	name   string
	attack func(*testing.T)
}

// shortRounds are quick and each of another sort: what is new, what is
// refused, what never ends, what panics.
func shortRounds() []round {
	return []round{
		{"churn", churn},
		{"secrets", TestNobodyReadsSecrets},
		{"slow headers", TestSlowHeaders},
		{"panics", TestPolicyThatMakesEveryWritePanic},
	}
}

// longRounds are all attacks on a control plane that leave it as it was.
func longRounds() []round {
	return append(shortRounds(), []round{
		{"bodies", TestBodiesThatNeverEndHoldSeats}, {"streams", TestStreamsThatNeverEndHoldSeats}, {"answers", TestAnswersThatAreNeverRead},
		{"idle connections", TestTenThousandIdleConnections}, {"resets", TestRapidReset}, {"frames", TestFloodsOfControlFrames},
		{"patches", TestPatchesThatMultiply}, {"multiplying bodies", TestBodiesThatMultiply}, {"definitions", TestDefinitionsThatMultiply},
		{"YAML", TestYAMLBombs}, {"webhooks", TestWebhooksThatAnswerGarbage}, {"paths", TestTenantReadsOthersSecretsByPathTricks},
		{"tokens", TestForgedTokensAreRefused}, {"bound tokens", TestTokensEndWithWhatTheyAreBoundTo}, {"roles", TestNobodyWidensRoles},
		{"nodes", TestNodesGetNoMoreThanTheirPods}, {"watchers", TestWatchersThatNeverRead},
	}...)
}

// TestSoak repeats attacks and a load of its own against one control plane:
// memory and goroutines stay flat.
func TestSoak(t *testing.T) {
	c := controlPlane(t)
	rounds := shortRounds()
	if *soak > 0 {
		rounds = longRounds()
	}
	var memory, goroutines []int64
	begun := time.Now()
	for n := 0; n < 2 || time.Since(begun) < *soak; n++ {
		for _, r := range rounds {
			if !t.Run(fmt.Sprintf("%d/%s", n, r.name), r.attack) {
				return
			}
		}
		memory = append(memory, c.settled(t))
		goroutines = append(goroutines, c.gauge(t, "go_goroutines"))
		t.Logf("after %v: %d MB, %d goroutines", time.Since(begun).Round(time.Second), memory[n]>>20, goroutines[n])
	}
	flat(t, "memory in bytes", memory, soakMemory)
	flat(t, "goroutines", goroutines, soakGoroutines)
}

// flat fails the test if the last third of the figures is above the second
// third by more than growth: the first is the caches being filled.
func flat(t *testing.T, what string, figures []int64, growth int64) {
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

// gauge reads one figure of the API server's /metrics.
func (c *cluster) gauge(t *testing.T, name string) int64 {
	t.Helper()
	raw, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(context.Background()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if after, ok := strings.CutPrefix(line, name+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(after), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int64(value)
		}
	}
	t.Fatalf("/metrics has no %s", name)
	return 0
}

// churn makes objects under watch and takes them away again.
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
	deadline := time.NewTimer(patience)
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
