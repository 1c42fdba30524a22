package stats

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a container uses of the CPU is computed where the runtime only says what it has used
// in all.
func TestCoresOfContainers(t *testing.T) {
	p, runtime := newProvider(t)
	second := func(n float64) *runtimeapi.UInt64Value { return number(uint64(n * 1e9)) }
	for i, step := range []struct {
		at          int64 // seconds
		total, own  *runtimeapi.UInt64Value
		want, ofPod *uint64
	}{
		{0, second(0), nil, nil, nil},
		{10, second(5), nil, pointer(uint64(5e8)), pointer(uint64(5e8))},
		{10, second(5), nil, pointer(uint64(5e8)), pointer(uint64(5e8))},  // measured only once
		{12, second(7), nil, pointer(uint64(5e8)), pointer(uint64(5e8))},  // too soon
		{20, second(15), nil, pointer(uint64(1e9)), pointer(uint64(1e9))}, // since the tenth second
		{30, second(1), nil, nil, nil},                                    // it counts anew
		{40, second(1), nil, pointer(uint64(0)), pointer(uint64(0))},
		{50, second(9), number(7), pointer(uint64(7)), pointer(uint64(7))}, // the runtime knows better
		{60, nil, nil, nil, nil},
	} {
		runtime.containers[0].Cpu = &runtimeapi.CpuUsage{Timestamp: step.at * int64(time.Second), UsageCoreNanoSeconds: step.total, UsageNanoCores: step.own}
		summary, err := p.Summary(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		same := func(a, b *uint64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
		got := summary.Pods[0]
		if !same(got.Containers[0].CPU.UsageNanoCores, step.want) || !same(got.CPU.UsageNanoCores, step.ofPod) {
			t.Errorf("step %d: %v nanocores, the pod %v", i, got.Containers[0].CPU, got.CPU)
		}
	}
	runtime.containers = nil
	if _, err := p.Summary(t.Context(), true); err != nil || len(p.cpuUsed) != 0 {
		t.Errorf("%d containers that are gone are remembered (%v)", len(p.cpuUsed), err)
	}
}
