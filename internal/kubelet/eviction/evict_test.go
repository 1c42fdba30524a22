package eviction

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

func TestParseRefuses(t *testing.T) {
	for signal, text := range map[string]string{"memory.free": "1Gi", "memory.available": "lots", "nodefs.available": "120%"} {
		if got, err := Parse(map[string]string{signal: text}, nil); err == nil {
			t.Errorf("%s<%s was taken as %v", signal, text, got)
		}
	}
	if _, err := Parse(map[string]string{"memory.available": "1Gi"}, map[string]string{}); err == nil {
		t.Error("a soft threshold without grace period was taken")
	}
}

func TestSoftThresholdWaits(t *testing.T) {
	soft, err := Parse(map[string]string{MemoryAvailable: "10%"}, map[string]string{MemoryAvailable: "1m"})
	if err != nil {
		t.Fatal(err)
	}
	state := &State{Transition: 5 * time.Minute}
	low, begin := node.Free{MemoryBytes: 5, MemoryTotal: 100}, time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		after time.Duration
		due   bool
	}{{0, false}, {59 * time.Second, false}, {time.Minute, true}} {
		if got := state.Look(state.Passed(soft, low), begin.Add(test.after)); (got != nil) != test.due {
			t.Errorf("after %s: %v", test.after, got)
		}
	}
	end := begin.Add(2 * time.Minute)
	state.Look(nil, end)
	if !state.Under(v1.NodeMemoryPressure, end) || state.Under(v1.NodeMemoryPressure, end.Add(5*time.Minute)) {
		t.Error("the pressure does not last for the transition period")
	}
}

func TestPressureIsThereWithoutTransition(t *testing.T) {
	hard, err := Parse(map[string]string{PIDAvailable: "100"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	state, now := &State{}, time.Unix(1_800_000_000, 0)
	state.Look(state.Passed(hard, node.Free{PIDs: 50, PIDsTotal: 1000}), now)
	if !state.Under(v1.NodePIDPressure, now) || state.Under(v1.NodeMemoryPressure, now) {
		t.Error("only processes are short")
	}
	state.Look(state.Passed(hard, node.Free{PIDs: 150, PIDsTotal: 1000}), now)
	if state.Under(v1.NodePIDPressure, now) {
		t.Error("nothing is short any more")
	}
}

func TestRank(t *testing.T) {
	candidate := func(name string, priority int32, request string, used int64) Candidate {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}}}}}}
		return Candidate{Pod: p, Used: used}
	}
	got := ""
	for _, c := range Rank([]Candidate{
		candidate("a", 0, "100", 50), candidate("b", 10, "100", 300), candidate("c", 0, "100", 150), candidate("d", 0, "100", 400),
	}, v1.ResourceMemory) {
		got += c.Pod.Name
	}
	if got != "dcba" {
		t.Errorf("order %s, want dcba", got)
	}
	hiding := candidate("hiding", 0, "100", 1)
	hiding.Uncounted = errors.New("more than was counted")
	if first := Rank([]Candidate{candidate("large", 0, "100", 1<<40), hiding}, v1.ResourceMemory)[0].Pod.Name; first != "hiding" {
		t.Errorf("%s goes first, not the pod that hides what it uses", first)
	}
}

func TestMinimumIsReclaimed(t *testing.T) {
	hard, err := Parse(map[string]string{MemoryAvailable: "100"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if hard, err = Reclaim(hard, map[string]string{MemoryAvailable: "5%", PIDAvailable: "10"}); err != nil {
		t.Fatal(err)
	}
	state, now := &State{}, time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		left   int64
		passed bool
	}{{120, false}, {99, true}, {120, true}, {149, true}, {150, false}, {120, false}} {
		passed := state.Passed(hard, node.Free{MemoryBytes: test.left, MemoryTotal: 1000})
		if due := state.Look(passed, now); (due != nil) != test.passed {
			t.Errorf("%d left: %v", test.left, due)
		}
	}
	if _, err := Reclaim(hard, map[string]string{MemoryAvailable: "much"}); err == nil {
		t.Error("a minimum that is no quantity was taken")
	}
}
