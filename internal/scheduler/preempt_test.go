package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clientcache "k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

func priority(n int32) podOption {
	return func(p *v1.Pod) { p.Spec.Priority = &n }
}

func never(p *v1.Pod) {
	policy := v1.PreemptNever
	p.Spec.PreemptionPolicy = &policy
}

// preemption is a pod that does not fit on its nodes, and the expected result.
type preemption struct {
	name      string
	nodes     []*v1.Node
	running   []*v1.Pod
	pod       *v1.Pod
	protected []string // pods whose budgets allow no disruption
	node      string   // that the pod is nominated for
	victims   []string
	why       string // nothing is preempted
}

func full(name, node string, prio int32, options ...podOption) *v1.Pod {
	return running(pod(name, append(options, requests("1", "1Gi"), priority(prio))...), node)
}

// web is a running pod of those that overZonesAndNodes spreads.
func web(name, node string, prio int32) *v1.Pod {
	return running(pod(name, labeled("app", "web"), priority(prio)), node)
}

func overZonesAndNodes(p *v1.Pod) {
	spreadBy(v1.LabelTopologyZone, "web")(p)
	zones := p.Spec.TopologySpreadConstraints
	spreadBy(v1.LabelHostname, "web")(p)
	p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, zones...)
}

func TestPreempt(t *testing.T) {
	for _, test := range []preemption{
		{
			name: "the least important pods go", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{full("low", "a", 1), full("middle", "a", 5)},
			pod:     pod("p", requests("1", "1Gi"), priority(10)), node: "a", victims: []string{"low"},
		},
		{
			name: "as many as are needed", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{full("low", "a", 1), full("middle", "a", 5)},
			pod:     pod("p", requests("2", "1Gi"), priority(10)), node: "a", victims: []string{"low", "middle"},
		},
		{
			name: "where the victims matter least", nodes: []*v1.Node{node("a"), node("b")},
			running: []*v1.Pod{full("a1", "a", 5), full("a2", "a", 5), full("b1", "b", 2), full("b2", "b", 2)},
			pod:     pod("p", requests("1", "1Gi"), priority(10)), node: "b", victims: []string{"b2"},
		},
		{
			name: "budgets are kept where they can be", nodes: []*v1.Node{node("a"), node("b")},
			running:   []*v1.Pod{full("a1", "a", 1), full("a2", "a", 1), full("b1", "b", 5), full("b2", "b", 5)},
			protected: []string{"a1", "a2"},
			pod:       pod("p", requests("1", "1Gi"), priority(10)), node: "b", victims: []string{"b2"},
		},
		{
			name: "host ports are freed", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{running(pod("r", onPort(80), priority(1)), "a")},
			pod:     pod("p", onPort(80), priority(10)), node: "a", victims: []string{"r"},
		},
		{
			name: "anti-affinity is lifted", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{running(pod("r", labeled("app", "web"), priority(1)), "a")},
			pod:     pod("p", antiAffinity("app", "web"), priority(10)), node: "a", victims: []string{"r"},
		},
		{
			name: "a small pod stays, though it matters less", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{running(pod("small", requests("100m", "1Gi"), priority(1)), "a"), running(pod("large", requests("1900m", "1Gi"), priority(5)), "a")},
			pod:     pod("p", requests("1900m", "1Gi"), priority(10)), node: "a", victims: []string{"large"},
		},
		{
			name: "pods are spread", nodes: []*v1.Node{node("a", zone("1")), node("b", zone("1")), node("c", zone("2"))},
			running: []*v1.Pod{web("a1", "a", 5), web("a2", "a", 1), web("b1", "b", 2), web("c1", "c", 20), web("c2", "c", 20)},
			pod:     pod("p", overZonesAndNodes, priority(10)), node: "a", victims: []string{"a2"},
		},
	} {
		t.Run(test.name, test.run)
	}
}

func TestNoPreemption(t *testing.T) {
	for _, test := range []preemption{
		{
			name: "equal priority stays", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{full("r", "a", 10), full("s", "a", 10)},
			pod:     pod("p", requests("1", "1Gi"), priority(10)),
			why:     "0/1 nodes are available: 1 No preemption victims found for incoming pod",
		},
		{
			name: "no eviction makes a node bigger", nodes: []*v1.Node{node("a"), node("b", cordoned)},
			running: []*v1.Pod{full("r", "a", 1)}, pod: pod("p", requests("3", "1Gi"), priority(10)),
			why: "0/2 nodes are available: 2 Preemption is not helpful for scheduling",
		},
		{
			name: "each node has its own reason", nodes: []*v1.Node{node("a"), node("b"), node("c", cordoned)},
			running: []*v1.Pod{full("r", "a", 1), full("s", "a", 10), full("t", "b", 10)}, pod: pod("p", requests("2", "1Gi"), priority(10)),
			why: "0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling",
		},
		{
			name: "a pod may be peaceful", nodes: []*v1.Node{node("a")},
			running: []*v1.Pod{full("r", "a", 1), full("s", "a", 1)}, pod: pod("p", requests("1", "1Gi"), priority(10), never),
			why: "not eligible due to preemptionPolicy=Never",
		},
	} {
		t.Run(test.name, test.run)
	}
}

func (test preemption) run(t *testing.T) {
	written := make(chan struct{}, 100)
	s, c, stop := preempting(t, func(c *fake.Clientset) {
		c.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if patch, ok := action.(clienttesting.PatchAction); action.GetVerb() == "delete" || ok && patch.GetName() == test.pod.Name {
				written <- struct{}{}
			}
			return false, nil, nil
		})
	}, test.objects()...)
	defer stop()
	for _, n := range test.nodes {
		s.cache.SetNode(n)
	}
	for _, p := range test.running {
		s.cache.SetPod(p)
	}
	test.schedule(t, s, written)
	var victims []string
	for _, action := range c.Actions() {
		if d, ok := action.(clienttesting.DeleteAction); ok {
			victims = append(victims, d.GetName())
		}
	}
	slices.Sort(victims)
	slices.Sort(test.victims)
	kept, err := c.CoreV1().Pods("default").Get(t.Context(), test.pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var message string
	for _, condition := range kept.Status.Conditions {
		message = condition.Message
	}
	if !slices.Equal(victims, test.victims) || kept.Status.NominatedNodeName != test.node || s.nominator.NominatedNode(test.pod.UID) != test.node {
		t.Errorf("preempts %v on %q, want %v on %q", victims, kept.Status.NominatedNodeName, test.victims, test.node)
	}
	if test.why != "" && !strings.HasSuffix(message, " no new claims to deallocate, preemption: "+test.why+".") {
		t.Errorf("message %q, want why %q", message, test.why)
	}
	if found := fmt.Sprintf(". preemption: found a potential placement for pod on node %s, preempting %d victims", test.node, len(test.victims)); test.why == "" && !strings.HasSuffix(message, found) {
		t.Errorf("message %q, want %q at the end", message, found)
	}
}

// objects returns what the API server holds.
func (test preemption) objects() []runtime.Object {
	var objects []runtime.Object
	for _, name := range test.protected {
		objects = append(objects, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}},
		})
	}
	for _, p := range test.running {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels["name"] = p.Name
		objects = append(objects, p)
	}
	test.pod.Spec.SchedulerName = DefaultName
	return append(objects, test.pod)
}

// schedule tries to schedule the pod once, and waits for the writes: its
// status, and the deletion of each victim.
func (test preemption) schedule(t *testing.T, s *Scheduler, written <-chan struct{}) {
	s.queue.Add(test.pod)
	it, err := s.queue.Pop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = supervise.Run(t.Context(), func(ctx context.Context) error {
		s.scheduleOne(ctx, it)
		for range len(test.victims) + 1 {
			select {
			case <-written:
			case <-time.After(time.Minute):
				return errors.New("the status or a deletion was not written")
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// preempting returns a scheduler over a fake API that has the objects. prepare
// is called before anybody uses the API.
func preempting(t *testing.T, prepare func(*fake.Clientset), objects ...runtime.Object) (*Scheduler, *fake.Clientset, func()) {
	c, _ := newFake(objects...)
	prepare(c)
	informers := client.NewInformers(c)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := New(ctx, Config{Client: &client.Client{Kubernetes: c, Informers: informers}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = informers.Run(ctx)
	}()
	budgets := informers.Policy().V1().PodDisruptionBudgets().Informer()
	if !clientcache.WaitFor(ctx, "", budgets.HasSyncedChecker()) {
		t.Fatal("the budgets are not known")
	}
	return s, c, func() { cancel(); <-ended }
}

// No room is made for a pod that is deleted while it is being scheduled, and
// it does not come back.
func TestAPodIsDeletedWhileItIsScheduled(t *testing.T) {
	p := pod("p", requests("1", "1Gi"), priority(10))
	p.Spec.SchedulerName = DefaultName
	s, c, stop := preempting(t, func(*fake.Clientset) {})
	defer stop()
	s.cache.SetNode(node("a"))
	for _, name := range []string{"r", "s"} {
		s.cache.SetPod(running(pod(name, requests("1", "1Gi"), priority(1)), "a"))
	}
	s.queue.Add(p)
	it, err := s.queue.Pop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.queue.Expects(p.UID) {
		t.Error("a pod that is there is not expected")
	}
	s.queue.Delete(p.UID)
	err = supervise.Run(t.Context(), func(ctx context.Context) error {
		s.scheduleOne(ctx, it)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range c.Actions() {
		if action.GetVerb() == "delete" {
			t.Errorf("evicts %+v", action)
		}
	}
	if n := s.queue.Counts(); n.Active+n.Backoff+n.Unschedulable+n.Gated != 0 {
		t.Errorf("the pod is in the queue: %+v", n)
	}
}
