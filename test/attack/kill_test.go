package attack

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/coracle-io/coracle/internal/host"
	supervision "github.com/coracle-io/coracle/internal/processes"
)

var kills = flag.Int("attack.kills", 10, "number of kills in TestKillProcessesAtRandom")

// recovery is how long a cluster may take to recover from a kill -9. The default
// says nothing of speed. What survives a kill does not depend on it.
var recovery = flag.Duration("attack.recovery", waitTimeout, "bound of the recovery from a kill; 2s is that of a machine that does nothing else")

// requestTimeout bounds a request of a writer. What a longer one has done is
// unknown.
const requestTimeout = 10 * time.Second

// logOnFailure logs the state and the log of the cluster if the test has
// failed.
func (c *cluster) logOnFailure(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		log, err := os.ReadFile(filepath.Join(c.dataDir, "coracle.log"))
		if err != nil {
			t.Log(err)
		}
		const enough = 8 << 10
		text, err := c.coracle("status", "--name="+c.name)
		t.Logf("%s(%v)\n%s", text, err, log[max(0, len(log)-enough):])
	})
}

// kill sends SIGKILL to a part. It starts a killed supervisor again with up.
func (c *cluster) kill(t *testing.T, part string) {
	t.Helper()
	if err := syscall.Kill(c.pid(t, part), syscall.SIGKILL); err != nil {
		t.Fatalf("kill the %s: %v", part, err)
	}
	if part != supervisor {
		return
	}
	if out, err := c.coracle("up", "--name="+c.name); err != nil {
		t.Fatalf("up after the supervisor was killed: %v\n%s", err, out)
	}
}

// run starts pods and returns the ids of their containers once they are Ready.
func (c *cluster) run(t *testing.T, names ...string) map[string]string {
	t.Helper()
	for _, name := range names {
		if _, err := c.client.CoreV1().Pods("default").Create(context.Background(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "web", Image: "coracle.internal/frontend:1.0"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var ids map[string]string
	within(t, waitTimeout, "the pods are Ready", func(ctx context.Context) (err error) {
		ids, err = c.containers(ctx, len(names))
		return err
	})
	return ids
}

// containers returns the ids and restarts of the containers by pod, if the
// given number of pods is Ready.
func (c *cluster) containers(ctx context.Context, want int) (map[string]string, error) {
	pods, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for i := range pods.Items {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			if s.Ready {
				ids[pods.Items[i].Name] = fmt.Sprint(s.ContainerID, " ", s.RestartCount)
			}
		}
	}
	if len(ids) != want {
		return nil, fmt.Errorf("%d of %d pods are Ready", len(ids), want)
	}
	return ids, nil
}

// checkHealthy returns an error unless the cluster works: its processes, the runtime,
// an API server that stores objects, and a Ready node.
func (c *cluster) checkHealthy(ctx context.Context, former map[string]int) error {
	s, ok, err := supervision.Read(host.RunDir(c.name))
	if err != nil || !ok || !s.Ready {
		return fmt.Errorf("the supervisor is not ready (%t, %v)", ok, err)
	}
	for _, p := range s.Processes {
		if !p.Ready || !p.Running() || p.PID == former[p.Name] {
			return fmt.Errorf("the process %s is not ready", p.Name)
		}
	}
	if pid, err := c.containerdPID(); err != nil || pid == former[containerd] {
		return fmt.Errorf("containerd is not running (%v)", err)
	}
	if _, err := c.client.CoreV1().ConfigMaps("default").Create(ctx, &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "whole-"},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return err
	}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		for _, condition := range nodes.Items[i].Status.Conditions {
			if condition.Type == v1.NodeReady && condition.Status != v1.ConditionTrue {
				return fmt.Errorf("node %s is not Ready: %s", nodes.Items[i].Name, condition.Message)
			}
		}
	}
	return nil
}

// within waits until is returns nil, and returns how long that took.
func within(t *testing.T, limit time.Duration, what string, is func(context.Context) error) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	var last error
	for {
		err := is(ctx)
		if ctx.Err() == nil { // otherwise the error says no more than that
			last = err
		}
		if err == nil && ctx.Err() == nil {
			return time.Since(began)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, limit, last)
		case <-again.C:
		}
	}
}

// writer creates ConfigMaps, deletes old ones, and records what was
// acknowledged.
type writer struct {
	configMaps corev1.ConfigMapInterface
	name       string
	stored     map[string]bool // by name, for acknowledged requests: whether the ConfigMap exists
	failed     int
}

const (
	// kept is the number of ConfigMaps that a writer keeps.
	kept = 100
	// pace is the time between two requests of a writer.
	pace = 20 * time.Millisecond
)

func (w *writer) run(ctx context.Context) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%06d", w.name, i)
		w.try(ctx, name, true, func(ctx context.Context) error {
			_, err := w.configMaps.Create(ctx, &v1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"name": name},
			}, metav1.CreateOptions{})
			return err
		})
		if old := fmt.Sprintf("%s-%06d", w.name, i-kept); w.stored[old] {
			w.try(ctx, old, false, func(ctx context.Context) error {
				return w.configMaps.Delete(ctx, old, metav1.DeleteOptions{})
			})
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// try sends a request. A request that was not acknowledged may still have been
// carried out.
func (w *writer) try(ctx context.Context, name string, stored bool, request func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := request(ctx); err == nil {
		w.stored[name] = stored
		return
	}
	w.failed++
	delete(w.stored, name)
}

// write starts writers. The returned function stops them and checks that no
// acknowledged write was lost.
func (c *cluster) write(t *testing.T, writers int) (check func()) {
	ctx, cancel := context.WithCancel(context.Background())
	configMaps := c.client.CoreV1().ConfigMaps("kube-public")
	all := make([]*writer, writers)
	var running sync.WaitGroup
	for i := range all {
		all[i] = &writer{configMaps: configMaps, name: fmt.Sprintf("writer-%d", i), stored: map[string]bool{}}
		running.Go(func() { all[i].run(ctx) })
	}
	return func() {
		t.Helper()
		cancel()
		running.Wait()
		list, err := configMaps.List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for i := range list.Items {
			there[list.Items[i].Name] = list.Items[i].Data["name"] == list.Items[i].Name
		}
		count, failed := 0, 0
		for _, w := range all {
			count, failed = count+len(w.stored), failed+w.failed
			for name, stored := range w.stored {
				if there[name] != stored {
					t.Errorf("ConfigMap %s does not match the acknowledged requests, after which it exists: %t", name, stored)
				}
			}
		}
		t.Logf("%d ConfigMaps acknowledged, %d requests not acknowledged", count, failed)
		if count == 0 {
			t.Error("nothing was acknowledged")
		}
	}
}

// TestKillEachProcess kills each process of a cluster in turn: the others keep
// running, it is restarted, pods keep their containers, and the reason is
// reported.
func TestKillEachProcess(t *testing.T) {
	c := startOwn(t)
	c.logOnFailure(t)
	ids := c.run(t, "stays")
	check := c.write(t, 2)
	for _, part := range []string{supervision.ControlPlane, supervision.Node, containerd, supervisor} {
		before := c.supervised(t)
		former := map[string]int{part: c.pid(t, part)}
		c.kill(t, part)
		took := within(t, *recovery, "the cluster is healthy after the kill of the "+part, func(ctx context.Context) error { return c.checkHealthy(ctx, former) })
		t.Logf("healthy %v after the kill of the %s", took.Round(time.Millisecond), part)
		after := c.supervised(t)
		for i, p := range after.Processes {
			switch {
			case part == supervisor:
			case p.Name != part && p.PID != before.Processes[i].PID:
				t.Errorf("the kill of the %s ended the %s", part, p.Name)
			case p.Name == part && (p.Restarts != before.Processes[i].Restarts+1 || !strings.Contains(p.LastCause, "signal 9")):
				t.Errorf("after the kill of the %s its status is %+v", part, p)
			}
		}
		var text string
		within(t, *recovery, "status succeeds after the kill of the "+part, func(context.Context) (err error) {
			text, err = c.coracle("status", "--name="+c.name)
			return err
		})
		if want := "signal 9"; (part == supervision.ControlPlane || part == supervision.Node) && !strings.Contains(text, want) {
			t.Errorf("status after the kill of the %s does not say %q:\n%s", part, want, text)
		}
	}
	check()
	checkKept(t, c, ids)
}

// checkKept fails the test unless the pods have the same containers as before.
func checkKept(t *testing.T, c *cluster, before map[string]string) {
	t.Helper()
	var now map[string]string
	within(t, waitTimeout, "the pods are Ready", func(ctx context.Context) (err error) {
		now, err = c.containers(ctx, len(before))
		return err
	})
	for pod, id := range before {
		if now[pod] != id {
			t.Errorf("the container of %s was %s and is %s", pod, id, now[pod])
		}
	}
}

// TestKillNodeDuringAPIRequests checks that the API server answers while the
// node's process is being restarted.
func TestKillNodeDuringAPIRequests(t *testing.T) {
	c := startOwn(t)
	c.logOnFailure(t)
	ctx, cancel := context.WithCancel(context.Background())
	var asked, failed int
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			asked++
			if _, err := c.client.CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{}); err != nil {
				failed++
			}
		}
	})
	former := map[string]int{supervision.Node: c.pid(t, supervision.Node)}
	c.kill(t, supervision.Node)
	within(t, *recovery, "the node is healthy", func(ctx context.Context) error { return c.checkHealthy(ctx, former) })
	cancel()
	asking.Wait()
	if failed > 0 || asked == 0 {
		t.Errorf("%d of %d requests failed", failed, asked)
	}
}

// TestStatusOfAHangingControlPlane checks that status reports a control plane
// that hangs, and does not wait for it: it hangs until the test ends.
func TestStatusOfAHangingControlPlane(t *testing.T) {
	c := startOwn(t, "--nodes=0")
	pid := c.pid(t, supervision.ControlPlane)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	began, slowest := time.Now(), longest{}
	text, err := c.coracle("status", "--name="+c.name)
	slowest.note("status", began)
	slowest.check(t)
	if err == nil || !strings.Contains(text, "suspended") {
		t.Errorf("status of a control plane that hangs (%v):\n%s", err, text)
	}
	if text, err := c.coracle("status", "--name="+c.name, "-o", "json"); err == nil {
		t.Error("status -o json of a control plane that hangs does not fail")
	} else {
		var told struct{ Problem string }
		first, _, _ := strings.Cut(text, "\n")
		if err := json.Unmarshal([]byte(first), &told); err != nil || told.Problem == "" {
			t.Errorf("no problem in %s (%v)", text, err)
		}
	}
}

// TestKillProcessesAtRandom kills processes at random during writes: no
// acknowledged write is lost, the cluster recovers each time, and pods keep
// their containers.
func TestKillProcessesAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := startOwn(t)
	c.logOnFailure(t)
	ids := c.run(t, "one", "two", "three")
	check := c.write(t, 4)
	parts := []string{supervision.ControlPlane, supervision.Node, containerd, supervisor}
	slowest := map[string]time.Duration{}
	for range *kills {
		// A process that ran for less than a second is restarted with a delay.
		calm := time.NewTimer(time.Second + time.Duration(random.Int64N(int64(300*time.Millisecond))))
		<-calm.C
		part := parts[random.IntN(len(parts))]
		former := map[string]int{part: c.pid(t, part)}
		c.kill(t, part)
		took := within(t, *recovery, "the cluster is healthy after the kill of the "+part, func(ctx context.Context) error { return c.checkHealthy(ctx, former) })
		slowest[part] = max(slowest[part], took)
	}
	t.Logf("slowest recovery: %v", slowest)
	check()
	checkKept(t, c, ids)
}
