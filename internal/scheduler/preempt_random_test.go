package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestPreemptionUnderChurn adds and deletes pods of all priorities at random,
// with watches that lag and requests that fail, and lets things settle. Then
// every pod that fits is bound, nobody is nominated in vain, and no pod was
// evicted twice or for less than its own priority.
func TestPreemptionUnderChurn(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { churn(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func churn(t *testing.T, r *rand.Rand) {
	var nodes []*v1.Node
	var objects []runtime.Object
	for i := range 3 {
		nodes = append(nodes, node(fmt.Sprint("n", i)))
		objects = append(objects, nodes[i])
	}
	lag, faults := rand.New(rand.NewPCG(r.Uint64(), 2)), rand.New(rand.NewPCG(r.Uint64(), 3))
	prepare := func(s *simulation) {
		s.grace = time.Duration(1+r.IntN(20)) * time.Second
		s.replace = r.IntN(2) == 0
		s.lag = func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return time.Duration(lag.IntN(2000)) * time.Millisecond
		}
		s.onPatch = func(string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if faults.IntN(10) == 0 {
				return errors.New("not now")
			}
			return nil
		}
	}
	simulate(t, prepare, func(s *simulation) {
		for i := range 40 {
			switch name := fmt.Sprint("p", i); r.IntN(4) {
			case 0:
				if p := s.get(fmt.Sprint("p", r.IntN(i+1))); p != nil {
					s.replace, p.Spec.Priority = false, new(int32)
					s.terminate(p)
				}
			default:
				s.add(preemptor(name, fmt.Sprint(1+r.IntN(2)), int32(r.IntN(4))))
			}
			advance(time.Duration(r.IntN(3000)) * time.Millisecond)
			s.checkRoom(nodes...)
		}
		advance(30 * time.Minute)
		s.check(nodes...)
		for name, n := range s.deleted() {
			if n != 1 {
				t.Errorf("%s was evicted %d times", name, n)
			}
		}
		s.settled(nodes)
	}, objects...)
}

// settled reports pods that wait although there is room, or that are nominated
// although nothing happens any more.
func (s *simulation) settled(nodes []*v1.Node) {
	s.t.Helper()
	list, err := s.c.CoreV1().Pods("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	cpu := func(p *v1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }
	for _, p := range list.Items {
		if p.Spec.NodeName != "" {
			continue
		}
		if p.Status.NominatedNodeName != "" || s.scheduler.nominator.NominatedNode(p.UID) != "" {
			s.t.Errorf("%s is nominated for %q in the API, %q in the scheduler", p.Name, p.Status.NominatedNodeName, s.scheduler.nominator.NominatedNode(p.UID))
		}
		for _, n := range nodes {
			free := n.Status.Allocatable.Cpu().MilliValue()
			for _, other := range list.Items {
				if other.Spec.NodeName == n.Name && *other.Spec.Priority >= *p.Spec.Priority {
					free -= cpu(&other)
				}
			}
			if free >= cpu(&p) {
				s.t.Errorf("%s of priority %d waits although %s has %dm for it", p.Name, *p.Spec.Priority, n.Name, free)
			}
		}
	}
}
