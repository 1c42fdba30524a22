package sim

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/simnode"
	"github.com/coracle-io/coracle/internal/supervise"
)

// controllers are those that meet faults.
const controllers = "--controllers=deployment-controller,replicaset-controller,statefulset-controller,job-controller," +
	"node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller,garbage-collector-controller"

// wideControllers are further ones of a wide simulation.
const wideControllers = ",daemonset-controller,cronjob-controller,disruption-controller,resourcequota-controller," +
	"persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller"

// reliable are those that what is simulated needs.
const reliable = "controllers=serviceaccount-controller,root-ca-certificate-publisher-controller,namespace-controller,node-ipam-controller"

// world is a cluster whose controllers, scheduler and nodes run apart from it.
type world struct {
	t      *testing.T
	seed   uint64
	admin  kubernetes.Interface
	config *rest.Config
	users  *random
	clocks *random
	faults *faults
	rules  *rules
	nodes  []*silentNode
}

// silentNode is a simulated node that can fall silent.
type silentNode struct {
	node *simnode.Node
	mu   sync.Mutex // guards silence
	// silence ends the node's kubelet.
	silence context.CancelFunc
	back    chan struct{} // receives when the node is to come back
}

// newWorld starts an API server. Start starts everything else.
func newWorld(t *testing.T, seed uint64) *world {
	c := clustertest.Start(t, cluster.Options{InProcess: true,
		APIServerArgs:         []string{"runtime-config=metrics.k8s.io/v1beta1=false"}, // the nodes are not the cluster's own, and it would dial them
		ControllerManagerArgs: []string{reliable},
		SchedulerArgs:         []string{"scheduler-name=nobody"},
	})
	w := &world{t: t, seed: seed, admin: c.Client(), config: c.Config(), users: newRandom(seed), clocks: newRandom(seed + 2<<32), faults: &faults{random: newRandom(seed + 1<<32)}}
	w.rules = newRules(w)
	return w
}

// start starts the components and the nodes. stop ends them and waits for it.
func (w *world) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.rules.start(ctx, &running)
	running.Go(func() { w.keepCrashing(ctx, "controller-manager", newManager().RunWith) })
	running.Go(func() { w.keepCrashing(ctx, "scheduler", newScheduler().RunWith) })
	const count = 4
	nodes, err := simnode.NewNodes(simnode.Options{Count: count})
	if err != nil {
		w.t.Fatal(err)
	}
	kubelets, err := newProvider(w.config, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	running.Go(func() { _ = kubelets.Run(ctx) }) // it runs for the first time
	for _, node := range nodes {
		n := &silentNode{node: node, back: make(chan struct{}, 1)}
		w.nodes = append(w.nodes, n)
		running.Go(func() { n.run(ctx, w, kubelets) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

func newManager() *component.ControllerManager {
	m := component.NewControllerManager()
	m.Leader.Configuration.LeaderElect, m.Serving.Port = new(false), 0
	fs := pflag.NewFlagSet("manager", pflag.PanicOnError)
	m.AddFlags(fs)
	names := controllers
	if *wide {
		names += wideControllers
	}
	_ = fs.Parse([]string{names}) // it panics instead
	return m
}

func newScheduler() *component.Scheduler {
	s := component.NewScheduler()
	s.Configuration.LeaderElection.LeaderElect, s.Serving.Port = new(false), 0
	fs := pflag.NewFlagSet("scheduler", pflag.PanicOnError)
	s.AddFlags(fs)
	_ = fs.Parse(nil)
	return s
}

// keepCrashing runs a component until ctx ends. After each crash it stays away
// for a while.
func (w *world) keepCrashing(ctx context.Context, name string, run func(context.Context, client.Provider) error) {
	for ctx.Err() == nil {
		life, crash := context.WithCancel(ctx)
		skew := w.skew()
		p, err := newProvider(w.config, func(base http.RoundTripper) http.RoundTripper {
			return &transport{w.faults, &skewed{base, skew}, crash}
		})
		if err == nil {
			err = supervise.RunOnce(life, name, func(ctx context.Context) error { return run(ctx, p) })
		}
		crashed := life.Err() != nil
		crash()
		if err != nil && !crashed {
			w.t.Errorf("seed %d: %s failed: %v", w.seed, name, err)
		}
		if ctx.Err() == nil {
			pause(time.Duration(w.faults.below(20)) * time.Second)
		}
	}
}

// run runs the node's kubelet until ctx ends, with the silences in between.
func (n *silentNode) run(ctx context.Context, w *world, shared *provider) {
	for ctx.Err() == nil {
		life, silence := context.WithCancel(ctx)
		n.mu.Lock()
		n.silence = silence
		n.mu.Unlock()
		err := w.kubelet(life, n, shared)
		silence()
		if err != nil {
			w.t.Errorf("node %s failed: %v", n.node.Name(), err)
		}
		select {
		case <-n.back:
		case <-ctx.Done():
		}
	}
}

// fallSilent ends the node's kubelet for a time.
func (n *silentNode) fallSilent(d time.Duration) {
	n.mu.Lock()
	n.silence()
	n.mu.Unlock()
	pause(d)
	n.back <- struct{}{}
}

// check fails the test if there is an error.
func (w *world) check(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("seed %d: %s: %v", w.seed, what, err)
	}
}

// until waits for a condition in virtual time, at most for a bound.
func (w *world) until(bound time.Duration, condition func() (unmet string)) {
	w.t.Helper()
	for deadline := time.Now().Add(bound); ; pause(time.Second) {
		unmet := condition()
		if unmet == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("seed %d: not within %v: %s", w.seed, bound, unmet)
		}
	}
}

// nodesAreReady reports which node is not ready.
func (w *world) nodesAreReady() string {
	list, err := w.admin.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	ready := 0
	for i := range list.Items {
		n := &list.Items[i]
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue && len(n.Spec.Taints) == 0 {
				ready++
			}
		}
	}
	if ready < len(w.nodes) {
		return "nodes are ready"
	}
	return ""
}
