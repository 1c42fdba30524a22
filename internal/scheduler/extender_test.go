package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/supervise"
)

// extending is a pod that is scheduled once with an extender.
type extending struct {
	name     string
	answers  map[string]string // of the extender, by verb
	nodes    []*v1.Node
	running  []*v1.Pod
	pod      *v1.Pod
	nominate string // where the pod is nominated before

	node    string   // that the pod is bound to by the scheduler
	asked   []string // the verbs, in order
	victims []string
	message string // of the pod's condition
}

func TestExtenders(t *testing.T) {
	high := func(options ...podOption) *v1.Pod {
		return pod("p", append(options, requests("1", "1Gi"), priority(10))...)
	}
	two := []*v1.Node{node("a"), node("b")}
	fullNodes := []*v1.Pod{full("a1", "a", 1), full("a2", "a", 1), full("b1", "b", 2), full("b2", "b", 2)}
	var many []*v1.Node // of which not all are visited
	for i := range 125 {
		many = append(many, node(fmt.Sprint("node-", i)))
	}
	for _, test := range []extending{
		{
			name: "filter", nodes: two, pod: high(), answers: map[string]string{"filter": `{"NodeNames": ["b"], "FailedNodes": {"a": "too warm"}}`},
			node: "b", asked: []string{"filter"},
		},
		{
			name: "filter rejects all", nodes: two, pod: high(), answers: map[string]string{"filter": `{"FailedAndUnresolvableNodes": {"a": "too warm", "b": "too warm"}}`},
			asked: []string{"filter"}, message: "0/2 nodes are available: 2 too warm. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
		},
		{
			name: "filter gives no reason", nodes: two, pod: high(), answers: map[string]string{"filter": `{}`},
			asked: []string{"filter"}, message: "0/2 nodes are available: no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
		},
		{
			name: "filter rejects the nodes that were found, of more", nodes: many, pod: high(), answers: map[string]string{"filter": `{}`},
			asked: []string{"filter"}, message: "0/125 nodes are available: no new claims to deallocate, preemption: 0/125 nodes are available: 125 Preemption is not helpful for scheduling.",
		},
		{
			name: "only nodes that pass the filters are asked about", nodes: []*v1.Node{node("a", cordoned)}, pod: high(), answers: map[string]string{"filter": "none"},
			message: "0/1 nodes are available: 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
		},
		{
			name: "a failure ends the attempt", nodes: two, pod: high(), answers: map[string]string{"filter": `{"Error": "out of order"}`},
			asked: []string{"filter"}, message: "out of order",
		},
		{
			name: "scores are stronger than those of the plugins", nodes: two, pod: high(), running: []*v1.Pod{running(pod("r", requests("1", "3Gi")), "a")},
			answers: map[string]string{"prioritize": `[{"Host": "a", "Score": 10}]`}, node: "a", asked: []string{"prioritize"},
		},
		{
			name: "no scores for one node", nodes: two[:1], pod: high(), answers: map[string]string{"filter": `{"NodeNames": ["a"]}`, "prioritize": "none"},
			node: "a", asked: []string{"filter"},
		},
		{
			name: "bind", nodes: two[:1], pod: high(), answers: map[string]string{"bind": `{}`}, asked: []string{"bind"},
		},
		{
			name: "a binding is refused", nodes: two[:1], pod: high(), answers: map[string]string{"bind": `{"Error": "not today"}`}, asked: []string{"bind"}, message: "not today",
		},
		{
			name: "preempt chooses the node", nodes: two, pod: high(), running: fullNodes,
			answers: map[string]string{"preempt": `{"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "b1"}]}}}`},
			asked:   []string{"preempt"}, victims: []string{"b1"}, message: "Insufficient cpu",
		},
		{
			name: "preempt leaves no node", nodes: two, pod: high(), running: fullNodes, answers: map[string]string{"preempt": `{}`},
			asked: []string{"preempt"}, message: "preemption: no candidate node for preemption",
		},
		{
			name: "the nominated node is refused", nodes: two, pod: high(), nominate: "a", answers: map[string]string{"filter": `{"NodeNames": ["b"]}`},
			node: "b", asked: []string{"filter", "filter"},
		},
		{
			name: "the nominated node is taken", nodes: two, pod: high(), nominate: "a", answers: map[string]string{"filter": `{"NodeNames": ["a"]}`},
			node: "a", asked: []string{"filter"},
		},
	} {
		t.Run(test.name, test.run)
	}
}

func (test extending) run(t *testing.T) {
	wrote := writes{changes: make(chan func(*written), 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := strings.TrimPrefix(r.URL.Path, "/")
		wrote.changes <- func(all *written) { all.asked = append(all.asked, verb) }
		_, _ = io.WriteString(w, test.answers[verb])
	}))
	defer server.Close()
	e := config.Extender{URLPrefix: server.URL, NodeCacheCapable: true, Weight: 5}
	for verb := range test.answers {
		*map[string]*string{"filter": &e.FilterVerb, "prioritize": &e.PrioritizeVerb, "preempt": &e.PreemptVerb, "bind": &e.BindVerb}[verb] = verb
	}
	test.pod.Spec.SchedulerName = DefaultName
	objects := []runtime.Object{test.pod}
	for _, p := range test.running {
		objects = append(objects, p)
	}
	c := fake.NewSimpleClientset(objects...)
	wrote.record(c)
	s, err := New(t.Context(), Config{
		Client: &client.Client{Kubernetes: c, Informers: client.NewInformers(c)}, Configuration: config.Configuration{Extenders: []config.Extender{e}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range test.nodes {
		s.cache.SetNode(n)
	}
	for _, p := range test.running {
		s.cache.SetPod(p)
	}
	if test.nominate != "" {
		s.nominator.AddNominatedPod(framework.NewPodInfo(test.pod), test.nominate)
	}
	s.queue.Add(test.pod)
	it, err := s.queue.Pop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = supervise.Run(t.Context(), func(ctx context.Context) error {
		s.scheduleOne(ctx, it)
		return wrote.await(test.done)
	})
	if err != nil {
		t.Error(err)
	}
}

// done reports whether w has everything that the test wants.
func (test extending) done(w *written) bool {
	return slices.Equal(w.asked, test.asked) && w.node == test.node && slices.Equal(w.victims, test.victims) &&
		(w.message == test.message || test.message != "" && strings.Contains(w.message, test.message))
}

// written records what a scheduler has asked an extender and written to the
// API.
type written struct {
	node, message  string
	victims, asked []string
}

// writes passes on what happens.
type writes struct{ changes chan func(*written) }

func (w *writes) record(c *fake.Clientset) {
	c.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch a := action.(type) {
		case clienttesting.DeleteAction:
			w.changes <- func(all *written) { all.victims = append(all.victims, a.GetName()) }
		case clienttesting.CreateAction:
			if b, ok := a.GetObject().(*v1.Binding); ok {
				w.changes <- func(all *written) { all.node = b.Target.Name }
			}
			return true, a.GetObject(), nil
		case clienttesting.PatchAction:
			var p v1.Pod
			if err := json.Unmarshal(a.GetPatch(), &p); err != nil {
				return true, nil, err
			}
			for _, condition := range p.Status.Conditions {
				if condition.Type == v1.PodScheduled {
					w.changes <- func(all *written) { all.message = condition.Message }
				}
			}
		}
		return false, nil, nil
	})
}

// await waits until everything has happened.
func (w *writes) await(done func(*written) bool) error {
	var all written
	patience := time.After(time.Minute)
	for !done(&all) {
		select {
		case change := <-w.changes:
			change(&all)
		case <-patience:
			return fmt.Errorf("what happened in the end: %+v", all)
		}
	}
	return nil
}
