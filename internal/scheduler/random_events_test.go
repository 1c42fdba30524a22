package scheduler

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/podquery"
)

var (
	randomEvents = flag.Int("scheduler.events", 0, "how many random events TestRandomEvents makes with one seed; 0 is a few with several seeds")
	randomSeed   = flag.Uint64("scheduler.seed", 0, "seed of TestRandomEvents with -scheduler.events")
)

// TestRandomEvents runs a scheduler among random events: nodes and pods come,
// change and go, bindings fail or succeed with an error as the answer, other
// schedulers bind pods, and the scheduler loses its leadership. No pod is put
// on a node that it does not fit. When things have settled, every pod that
// fits is bound, and the scheduler knows every pod.
func TestRandomEvents(t *testing.T) {
	if *randomEvents > 0 {
		runRandomEvents(t, *randomSeed, *randomEvents)
		return
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runRandomEvents(t, seed, 500) })
	}
}

const (
	randomNodes = 12
	randomPods  = 150 // about as many as fit
	randomLag   = 50 * time.Millisecond
	// randomRestart is how many events there are for one restart of the scheduler.
	randomRestart = 100
	// uncertain is how long the scheduler may not know of a change.
	uncertain = time.Second
)

// world is a simulation with the history that is needed to judge bindings.
type world struct {
	simulation *simulation
	r          *rand.Rand
	made       int             // pods
	changes    watch.Interface // of the pods of the API

	reading sync.Mutex         // guards current
	current map[string]*v1.Pod // the pods of the API by name, without changes that were not read

	mu        sync.Mutex // guards the following
	faults    *rand.Rand
	nodes     map[string][]nodeVersion
	unnoticed map[types.UID]time.Time // pods that have a node which the scheduler may not know
	bound     map[types.UID]int
}

// nodeVersion is a node from a time on; nil is none.
type nodeVersion struct {
	node  *v1.Node
	since time.Time
}

func runRandomEvents(t *testing.T, seed uint64, events int) {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 1)), faults: rand.New(rand.NewPCG(seed, 2)), current: map[string]*v1.Pod{},
		nodes: map[string][]nodeVersion{}, unnoticed: map[types.UID]time.Time{}, bound: map[types.UID]int{},
	}
	prepare := func(s *simulation) {
		w.simulation, s.logger = s, logr.Discard()
		w.watchPods()
		s.c.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil }) // nothing removes them
		s.lag = func() time.Duration { return time.Duration(w.fault(int(randomLag))) }
		s.onPatch = func(string) error {
			w.read() // the watch holds a thousand changes
			if w.fault(20) == 0 {
				return errors.New("injected")
			}
			return nil
		}
		s.onBind = w.judge
		for i := range randomNodes {
			w.setNode(w.drawNode(i))
		}
	}
	simulate(t, prepare, func(s *simulation) {
		for i := range events {
			w.event()
			advance(time.Duration(w.r.IntN(200)) * time.Millisecond)
			if i%100 == 0 {
				s.forget()
			}
			if t.Failed() {
				t.Fatalf("after event %d of seed %d", i, seed)
			}
		}
		w.collectGarbage()
		advance(30 * time.Minute)
		w.checkSettled()
	})
}

// fault draws a number below n for a goroutine other than the test's.
func (w *world) fault(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults.IntN(n)
}

// event makes one random change.
func (w *world) event() {
	if w.r.IntN(randomRestart) == 0 {
		w.simulation.stop()
		advance(time.Duration(w.r.IntN(3000)) * time.Millisecond)
		w.simulation.start()
	}
	i := w.r.IntN(randomNodes)
	switch n := w.r.IntN(100); {
	case n < 3:
		w.deleteNode(fmt.Sprint("node-", i))
	case n < 15:
		w.setNode(w.drawNode(i))
	case n < 18:
		w.collectGarbage()
	case n < 55:
		if len(w.pods()) < randomPods {
			w.made++
			w.simulation.add(w.drawPod(fmt.Sprint("pod-", w.made)))
		}
	default:
		if pods := w.pods(); len(pods) > 0 {
			w.changePod(pods[w.r.IntN(len(pods))].DeepCopy(), n)
		}
	}
}

// changePod makes one random change of a pod.
func (w *world) changePod(p *v1.Pod, n int) {
	switch {
	case n < 75:
		w.simulation.terminate(p)
	case n < 80 && p.Spec.NodeName != "":
		p.Status.Phase = v1.PodSucceeded
		w.simulation.update(p)
	case n < 85 && p.Spec.NodeName == "":
		p.Spec.SchedulingGates = nil
		p.Generation++
		w.simulation.update(p)
	case n < 90 && p.Spec.NodeName == "" && len(p.Spec.Tolerations) == 0:
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: "k", Operator: v1.TolerationOpExists})
		p.Generation++
		w.simulation.update(p)
	case n < 92 && p.Spec.NodeName == "" && p.DeletionTimestamp == nil:
		p.Spec.NodeName = fmt.Sprint("node-", w.r.IntN(randomNodes)) // by another scheduler
		w.notice(p.UID)
		w.simulation.update(p)
	case n < 94:
		w.simulation.remove(p.Name)
	default:
		p.Annotations = map[string]string{"changed": fmt.Sprint(w.r.Uint32())}
		w.simulation.update(p)
	}
}

// notice notes that a pod has a node, which the scheduler does not know yet.
func (w *world) notice(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unnoticed[uid] = time.Now()
}

func (w *world) drawNode(i int) *v1.Node {
	n := zoned(fmt.Sprint("node-", i), fmt.Sprint("z", w.r.IntN(3)))
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: *resource.NewQuantity(int64(1+w.r.IntN(4)), resource.DecimalSI), v1.ResourceMemory: resource.MustParse("8Gi"),
		v1.ResourcePods: *resource.NewQuantity(int64(5+w.r.IntN(15)), resource.DecimalSI),
	}
	n.Spec.Unschedulable = w.r.IntN(8) == 0
	if w.r.IntN(4) == 0 {
		n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	}
	if w.r.IntN(2) == 0 {
		n.Labels["disk"] = "ssd"
	}
	return n
}

func (w *world) drawPod(name string) *v1.Pod {
	app := fmt.Sprint("app-", w.r.IntN(4))
	kinds := []podOption{
		func(*v1.Pod) {}, func(*v1.Pod) {}, func(*v1.Pod) {}, antiAffinity("app", app), affinity("app", app), spreadBy(zoneKey, app),
		selects("disk", "ssd"), onPort(80), func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}} },
	}
	amounts := []string{"100m", "200m", "500m", "1", "3"}
	return pod(name, labeled("app", app), requests(amounts[w.r.IntN(len(amounts))], "100Mi"), priority(int32(w.r.IntN(3))), kinds[w.r.IntN(len(kinds))])
}

func (w *world) setNode(n *v1.Node) {
	w.remember(n.Name, n)
	if err := w.simulation.objects.Update(nodesResource, n, ""); apierrors.IsNotFound(err) {
		err = w.simulation.objects.Create(nodesResource, n, "")
		if err != nil {
			w.simulation.t.Error(err)
		}
	} else if err != nil {
		w.simulation.t.Error(err)
	}
}

func (w *world) deleteNode(name string) {
	w.remember(name, nil)
	_ = w.simulation.objects.Delete(nodesResource, "", name) // it may be gone already
}

var nodesResource = v1.SchemeGroupVersion.WithResource("nodes")

// remember appends to the history of a node, without what nobody asks for any more.
func (w *world) remember(name string, n *v1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	history := append(w.nodes[name], nodeVersion{n, time.Now()})
	for len(history) > 1 && time.Since(history[1].since) > uncertain {
		history = history[1:]
	}
	w.nodes[name] = history
}

// watchPods has pods return what is written from now on. Each event and each binding
// asks for the pods, so that a list of them would take most of the time.
func (w *world) watchPods() {
	changes, err := w.simulation.objects.Watch(podsResource, "")
	if err != nil {
		w.simulation.t.Fatal(err)
	}
	w.changes = changes
}

// read brings current up to date. A change that was made is there to be read.
func (w *world) read() {
	w.reading.Lock()
	defer w.reading.Unlock()
	for {
		select {
		case e := <-w.changes.ResultChan():
			if p := e.Object.(*v1.Pod); e.Type == watch.Deleted {
				delete(w.current, p.Name)
			} else {
				w.current[p.Name] = p
			}
		default:
			return
		}
	}
}

// pods returns the pods of the API in the order of their names. They must not be changed.
func (w *world) pods() []*v1.Pod {
	w.read()
	w.reading.Lock()
	defer w.reading.Unlock()
	return slices.SortedFunc(maps.Values(w.current), func(a, b *v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

// collectGarbage removes finished pods and the pods of nodes that are gone.
func (w *world) collectGarbage() {
	current := w.currentNodes()
	for _, p := range w.pods() {
		gone := p.Spec.NodeName != "" && !slices.ContainsFunc(current, func(n *v1.Node) bool { return n.Name == p.Spec.NodeName })
		if gone || podquery.IsFinished(p) {
			w.simulation.remove(p.Name)
		}
	}
}

func (w *world) currentNodes() (nodes []*v1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range randomNodes {
		history := w.nodes[fmt.Sprint("node-", i)]
		if n := history[len(history)-1].node; n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// judge reports a binding to a node that the pod does not fit, and answers
// some bindings with errors, also of those that take effect.
func (w *world) judge(pod *v1.Pod, name string) (apply bool, err error) {
	placed := w.known()
	w.mu.Lock()
	defer w.mu.Unlock()
	var why []string
	fits := false
	for i, v := range w.nodes[name] {
		recent := i == len(w.nodes[name])-1 || time.Since(w.nodes[name][i+1].since) <= uncertain
		if v.node == nil || !recent {
			continue
		}
		r := &reference{nodes: []*v1.Node{v.node}, pods: placed}
		if why = r.misfit(pod, v.node); len(why) == 0 {
			fits = true
		}
	}
	if !fits {
		w.simulation.t.Errorf("%s is bound to %s, which it does not fit: %q", pod.Name, name, why)
	}
	switch w.faults.IntN(40) {
	case 0:
		return false, apierrors.NewConflict(podsResource.GroupResource(), pod.Name, errors.New("injected"))
	case 1:
		return false, apierrors.NewInternalError(errors.New("injected"))
	case 2:
		w.bound[pod.UID]++
		w.unnoticed[pod.UID] = time.Now()
		return true, apierrors.NewTimeoutError("injected", 1)
	}
	if w.bound[pod.UID]++; w.bound[pod.UID] > 1 {
		w.simulation.t.Errorf("%s is bound %d times", pod.Name, w.bound[pod.UID])
	}
	return true, nil
}

// known returns the pods that the scheduler must know to be on nodes.
func (w *world) known() (placed []*v1.Pod) {
	pods := w.pods()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range pods {
		since, unnoticed := w.unnoticed[p.UID]
		if p.Spec.NodeName != "" && !podquery.IsFinished(p) && (!unnoticed || time.Since(since) > uncertain) {
			placed = append(placed, p)
		}
	}
	return placed
}

// misfit returns why a pod cannot be on a node, for the plugins whose answer
// does not depend on pods that may have left since the decision.
func (r *reference) misfit(pod *v1.Pod, node *v1.Node) []string {
	alone := pod.DeepCopy()
	if alone.Spec.Affinity != nil {
		alone.Spec.Affinity.PodAffinity = nil
	}
	for _, plugin := range []func(*v1.Pod, *v1.Node) []string{
		r.nodeUnschedulable, r.taintToleration, r.nodeAffinity, r.nodePorts, r.nodeResourcesFit, r.interPodAffinity,
	} {
		if reasons := plugin(alone, node); len(reasons) > 0 {
			return reasons
		}
	}
	return nil
}

// checkSettled reports pods that wait although they fit, and differences
// between what the API holds and what the scheduler knows.
func (w *world) checkSettled() {
	r := &reference{nodes: w.currentNodes(), namespaces: map[string]map[string]string{}}
	waiting := 0
	for _, p := range w.pods() {
		if p.Spec.NodeName != "" && !podquery.IsFinished(p) {
			r.pods = append(r.pods, p)
		}
	}
	for _, p := range w.pods() {
		if p.Spec.NodeName != "" {
			continue
		}
		waiting++
		if !w.simulation.scheduler.queue.Has(p.UID) {
			w.simulation.t.Errorf("%s is not in the queue", p.Name)
		}
		for _, n := range r.nodes {
			if len(p.Spec.SchedulingGates) == 0 && len(r.reasons(p, n)) == 0 {
				w.simulation.t.Errorf("%s waits although %s takes it: %+v", p.Name, n.Name, p.Status)
			}
		}
	}
	counts := w.simulation.scheduler.queue.Counts()
	if queued := counts.Active + counts.Backoff + counts.Unschedulable + counts.Gated; queued != waiting {
		w.simulation.t.Errorf("%d pods are queued, want %d", queued, waiting)
	}
	if _, pods, assumed := w.simulation.scheduler.cache.Size(); pods != len(r.pods) || assumed != 0 {
		w.simulation.t.Errorf("the cache has %d pods of which %d are assumed, want %d", pods, assumed, len(r.pods))
	}
	w.simulation.t.Logf("%d pods made, %d bindings, %d on nodes, %d waiting", w.made, len(w.bound), len(r.pods), waiting)
}
