package cgroup

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestChangesAreMeasured(t *testing.T) {
	memory, registry := &Memory{}, prometheus.NewRegistry()
	groups := Measure(memory, registry)
	const path = "/kubepods/podx"
	for range 2 {
		if err := groups.Apply(path, &runtimeapi.LinuxContainerResources{CpuShares: 2}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := groups.Limit(path, &runtimeapi.LinuxContainerResources{CpuShares: 4}, 0); err != nil || memory.Get(path).GetCpuShares() != 4 {
		t.Errorf("the group was not limited: %v", err)
	}
	if memory.Get(path) == nil {
		t.Error("the group was not made")
	}
	if err := groups.Remove(path); err != nil || memory.Get(path) != nil {
		t.Errorf("the group was not removed: %v", err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
	}
	if len(families) != 1 || got["update"] != 3 || got["destroy"] != 1 {
		t.Errorf("measured are %v", got)
	}
}
