package eviction

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

func TestParseRefuses(t *testing.T) {
	for signal, text := range map[string]string{"memory.free": "1Gi", "memory.available": "lots", "nodefs.available": "120%"} {
		if got, err := parseThresholds(map[string]string{signal: text}, nil); err == nil {
			t.Errorf("%s<%s was taken as %v", signal, text, got)
		}
	}
	if _, err := parseThresholds(map[string]string{"memory.available": "1Gi"}, map[string]string{}); err == nil {
		t.Error("a soft threshold without grace period was taken")
	}
	for _, period := range []string{"", "much", "-1s"} {
		if got, err := parseThresholds(map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": period}); err == nil {
			t.Errorf("a soft threshold with the grace period %q was taken as %v", period, got)
		}
	}
	if got, err := parseThresholds(map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": "0s"}); err != nil || len(got) != 1 || got[0].Grace != 0 {
		t.Errorf("a soft threshold without a wait: %v, %v", got, err)
	}
}

// A misspelt signal would otherwise be ignored.
func TestUnknownSignalsAreRefusedByName(t *testing.T) {
	const unknown = "memory.free"
	for name, c := range map[string]*kubeletconfig.KubeletConfiguration{
		"evictionHard":            {EvictionHard: map[string]string{unknown: "1Gi"}},
		"evictionSoft":            {EvictionSoft: map[string]string{unknown: "1Gi"}, EvictionSoftGracePeriod: map[string]string{unknown: "1m"}},
		"evictionSoftGracePeriod": {EvictionSoftGracePeriod: map[string]string{unknown: "1m"}},
		"evictionMinimumReclaim":  {EvictionMinimumReclaim: map[string]string{unknown: "1Gi"}},
	} {
		if _, err := Thresholds(c); err == nil || !strings.Contains(err.Error(), unknown) {
			t.Errorf("%s: %v, want an error that names %s", name, err, unknown)
		}
	}
}

func TestImageSignalsMeasureTheImageFileSystem(t *testing.T) {
	thresholds, err := parseThresholds(map[string]string{nodeFsAvailable: "10%", nodeFsInodesFree: "10%", imageFsAvailable: "15%", imageFsInodesFree: "5%"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	free := node.Free{DiskBytes: 50, DiskTotal: 100, Inodes: 50, InodesTotal: 100, Images: node.FileSystem{Bytes: 14, Total: 100, Inodes: 4, InodesTotal: 100}}
	var got []string
	for _, passed := range (&thresholdState{}).thresholdsMet(thresholds, free) {
		got = append(got, passed.Signal)
	}
	if want := []string{imageFsAvailable, imageFsInodesFree}; !slices.Equal(got, want) {
		t.Errorf("exceeded are %v, want %v", got, want)
	}
}

func TestSoftThresholdWaits(t *testing.T) {
	soft, err := parseThresholds(map[string]string{memoryAvailable: "10%"}, map[string]string{memoryAvailable: "1m"})
	if err != nil {
		t.Fatal(err)
	}
	state := &thresholdState{Transition: 5 * time.Minute}
	low, begin := node.Free{MemoryBytes: 5, MemoryTotal: 100}, time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		after time.Duration
		due   bool
	}{{0, false}, {59 * time.Second, false}, {time.Minute, true}} {
		if got := state.observe(state.thresholdsMet(soft, low), begin.Add(test.after)); (got != nil) != test.due {
			t.Errorf("after %s: %v", test.after, got)
		}
	}
	end := begin.Add(2 * time.Minute)
	state.observe(nil, end)
	if !state.hasNodeCondition(v1.NodeMemoryPressure, end) || state.hasNodeCondition(v1.NodeMemoryPressure, end.Add(5*time.Minute)) {
		t.Error("the pressure does not last for the transition period")
	}
}

// A soft threshold lies above the hard one of the same signal, so that both are
// exceeded once the hard one is. Pods must then end at once.
func TestHardThresholdComesBeforeSoft(t *testing.T) {
	for _, signal := range []string{memoryAvailable, nodeFsAvailable, pidAvailable} {
		all, err := Thresholds(&kubeletconfig.KubeletConfiguration{
			EvictionHard: map[string]string{signal: "10"}, EvictionSoft: map[string]string{signal: "50"},
			EvictionSoftGracePeriod: map[string]string{signal: "1m"},
		})
		if err != nil {
			t.Fatal(err)
		}
		free := node.Free{MemoryBytes: 5, MemoryTotal: 100, DiskBytes: 5, DiskTotal: 100, PIDs: 5, PIDsTotal: 100}
		state, now := &thresholdState{}, time.Unix(1_800_000_000, 0)
		state.observe(state.thresholdsMet(all, free), now)
		due := state.observe(state.thresholdsMet(all, free), now.Add(2*time.Minute))
		if due == nil || due.Grace != 0 {
			t.Errorf("%s: %+v is due, want the hard threshold", signal, due)
		}
	}
}

func TestGracePeriodOfEvictions(t *testing.T) {
	hard, soft := &Threshold{}, &Threshold{Grace: time.Minute}
	for _, test := range []struct {
		name      string
		threshold *Threshold
		most      int32
		own, want int64
	}{
		{"hard", hard, 60, 30, 1},
		{"the pod's own is shorter", soft, 60, 30, 30},
		{"the pod's own is longer", soft, 60, 90, 60},
		{"by default at once", soft, 0, 30, 1},
		{"negative leaves it to the pod", soft, -1, 30, 30},
	} {
		m := &Manager{config: Config{Configuration: &kubeletconfig.KubeletConfiguration{EvictionMaxPodGracePeriod: test.most}}}
		if got := m.gracePeriod(test.threshold, &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &test.own}}); got != test.want {
			t.Errorf("%s: %d s, want %d s", test.name, got, test.want)
		}
	}
}

func TestPressureIsThereWithoutTransition(t *testing.T) {
	hard, err := parseThresholds(map[string]string{pidAvailable: "100"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	state, now := &thresholdState{}, time.Unix(1_800_000_000, 0)
	state.observe(state.thresholdsMet(hard, node.Free{PIDs: 50, PIDsTotal: 1000}), now)
	if !state.hasNodeCondition(v1.NodePIDPressure, now) || state.hasNodeCondition(v1.NodeMemoryPressure, now) {
		t.Error("only processes are short")
	}
	state.observe(state.thresholdsMet(hard, node.Free{PIDs: 150, PIDsTotal: 1000}), now)
	if state.hasNodeCondition(v1.NodePIDPressure, now) {
		t.Error("nothing is short any more")
	}
}

func TestRank(t *testing.T) {
	newCandidate := func(name string, priority int32, request string, used int64) candidate {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}}}}}}
		return candidate{Pod: p, Used: used}
	}
	got := ""
	for _, c := range rank([]candidate{
		newCandidate("a", 0, "100", 50), newCandidate("b", 10, "100", 300), newCandidate("c", 0, "100", 150), newCandidate("d", 0, "100", 400),
	}, v1.ResourceMemory) {
		got += c.Pod.Name
	}
	if got != "dcba" {
		t.Errorf("order %s, want dcba", got)
	}
	hiding := newCandidate("hiding", 0, "100", 1)
	hiding.Uncounted = errors.New("more than was counted")
	if first := rank([]candidate{newCandidate("large", 0, "100", 1<<40), hiding}, v1.ResourceMemory)[0].Pod.Name; first != "hiding" {
		t.Errorf("%s goes first, not the pod that hides what it uses", first)
	}
	// The requests of a pod may be tens of thousands, and memory is short.
	var many []candidate
	for i := range 100 {
		many = append(many, newCandidate(fmt.Sprint(i), int32(i%3), "100", int64(i)))
	}
	if n := testing.AllocsPerRun(5, func() { rank(many, v1.ResourceMemory) }); n > 50*100 {
		t.Errorf("%v allocations for 100 pods: their requests are added up for each comparison", n)
	}
}

func TestMinimumIsReclaimed(t *testing.T) {
	hard, err := parseThresholds(map[string]string{memoryAvailable: "100"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if hard, err = withMinimumReclaim(hard, map[string]string{memoryAvailable: "5%", pidAvailable: "10"}); err != nil {
		t.Fatal(err)
	}
	state, now := &thresholdState{}, time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		left   int64
		passed bool
	}{{120, false}, {99, true}, {120, true}, {149, true}, {150, false}, {120, false}} {
		passed := state.thresholdsMet(hard, node.Free{MemoryBytes: test.left, MemoryTotal: 1000})
		if due := state.observe(passed, now); (due != nil) != test.passed {
			t.Errorf("%d left: %v", test.left, due)
		}
	}
	if _, err := withMinimumReclaim(hard, map[string]string{memoryAvailable: "much"}); err == nil {
		t.Error("a minimum that is no quantity was taken")
	}
}

// A soft threshold that was exceeded for less than its grace period is met again at once:
// its minimum is to be reclaimed only after something was done to reclaim it.
func TestMinimumOfASoftThreshold(t *testing.T) {
	soft, err := parseThresholds(map[string]string{memoryAvailable: "100"}, map[string]string{memoryAvailable: "1m"})
	if err != nil {
		t.Fatal(err)
	}
	if soft, err = withMinimumReclaim(soft, map[string]string{memoryAvailable: "50"}); err != nil {
		t.Fatal(err)
	}
	state, begin := &thresholdState{}, time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		after, left   int64
		exceeded, due bool
	}{
		{0, 99, true, false}, {10, 120, false, false}, {80, 120, false, false},
		{90, 99, true, false}, {140, 99, true, false}, {150, 99, true, true}, {160, 120, true, true}, {170, 150, false, false},
	} {
		met := state.thresholdsMet(soft, node.Free{MemoryBytes: test.left, MemoryTotal: 1000})
		due := state.observe(met, begin.Add(time.Duration(test.after)*time.Second))
		if (len(met) > 0) != test.exceeded || (due != nil) != test.due {
			t.Errorf("after %d s with %d left: exceeded %v, due %v", test.after, test.left, met, due)
		}
	}
}

// The memory of all pods together comes before disks, too, and its hard threshold before
// a soft one of the machine's memory.
func TestMemoryOfAllPodsComesFirst(t *testing.T) {
	all, err := Thresholds(&kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{memoryAvailable: "100", nodeFsAvailable: "100"}, EvictionSoft: map[string]string{memoryAvailable: "400"},
		EvictionSoftGracePeriod: map[string]string{memoryAvailable: "1m"}, EnforceNodeAllocatable: []string{"pods"},
	})
	if err != nil {
		t.Fatal(err)
	}
	free := node.Free{MemoryBytes: 300, MemoryTotal: 1000, PodsMemoryBytes: 50, PodsMemoryTotal: 600, DiskBytes: 50, DiskTotal: 1000}
	state, begin := &thresholdState{}, time.Unix(1_800_000_000, 0)
	for _, after := range []time.Duration{0, 2 * time.Minute} {
		if due := state.observe(state.thresholdsMet(all, free), begin.Add(after)); due == nil || due.Signal != allocatableMemoryAvailable {
			t.Errorf("after %v, %+v is due", after, due)
		}
	}
}

// Thresholds of 0% and 100% are off, as in upstream. A threshold of all that
// there is would evict every pod.
func TestThresholdsThatAreOff(t *testing.T) {
	for _, text := range []string{"0", "0%", "100%"} {
		if got, err := parseThresholds(map[string]string{memoryAvailable: text}, nil); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// The limit of all pods together is a resource like the machine's memory.
func TestMemoryOfAllPods(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{memoryAvailable: "100"}, EvictionSoft: map[string]string{memoryAvailable: "400"},
		EvictionSoftGracePeriod: map[string]string{memoryAvailable: "1m"}, EnforceNodeAllocatable: []string{"pods"},
	}
	free, now := node.Free{MemoryBytes: 500, MemoryTotal: 1000, PodsMemoryBytes: 50, PodsMemoryTotal: 600}, time.Unix(1_800_000_000, 0)
	for _, enforced := range []bool{true, false} {
		if !enforced {
			c.EnforceNodeAllocatable = []string{"none"}
		}
		all, err := Thresholds(c)
		if err != nil {
			t.Fatal(err)
		}
		state := &thresholdState{}
		due := state.observe(state.thresholdsMet(all, free), now)
		if (due != nil) != enforced || state.hasNodeCondition(v1.NodeMemoryPressure, now) != enforced {
			t.Fatalf("enforced %t: due is %+v", enforced, due)
		}
		if due == nil {
			continue
		}
		message, annotations := evictionMessage(due, free, candidate{Pod: &v1.Pod{}})
		if message != "The node was low on resource: memory. Threshold quantity: 100, available: 50. " || annotations["starved_resource"] != "memory" {
			t.Errorf("message %q, annotations %v", message, annotations)
		}
	}
	if _, err := Thresholds(&kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{allocatableMemoryAvailable: "100"}}); err == nil {
		t.Error("a configuration named the signal")
	}
}
