package allocatable

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Pods get what neither the system nor the hard thresholds of memory and disk
// keep. Listed CPUs count instead of a reserved number of them.
func TestAllocatable(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{
		SystemReserved: map[string]string{"cpu": "500m", "memory": "1Gi"}, KubeReserved: map[string]string{"memory": "1Gi", "pid": "100"},
		EvictionHard: map[string]string{"memory.available": "512Mi", "nodefs.available": "10%"}, ReservedSystemCPUs: "0-1",
	}
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("4Gi"), "pid": resource.MustParse("50"),
		v1.ResourceEphemeralStorage: resource.MustParse("100Gi"), "hugepages-2Mi": resource.MustParse("512Mi"),
	}
	reserved, err := Reserved(c, capacity)
	if err != nil {
		t.Fatal(err)
	}
	left := ForPods(capacity, reserved)
	for name, want := range map[v1.ResourceName]string{
		v1.ResourceCPU: "2", v1.ResourceMemory: "1Gi", "pid": "0", v1.ResourceEphemeralStorage: "90Gi", "hugepages-2Mi": "512Mi",
	} {
		if got := left[name]; got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s: %s, want %s", name, got.String(), want)
		}
	}
	for _, wrong := range []*kubeletconfig.KubeletConfiguration{
		{SystemReserved: map[string]string{"cpu": "x"}}, {ReservedSystemCPUs: "x"}, {EvictionHard: map[string]string{"memory.available": "x"}},
		{EvictionHard: map[string]string{"nodefs.available": "x%"}},
		{KubeReserved: map[string]string{"memroy": "1Gi"}}, {SystemReserved: map[string]string{"memory": "-1Gi"}},
	} {
		if _, err := Reserved(wrong, capacity); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

// A threshold of memory may be a part of it, and 100% is none.
func TestAllocatableByPercentages(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	reserved, err := Reserved(&kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "25%", "nodefs.available": "100%"}}, capacity)
	if err != nil {
		t.Fatal(err)
	}
	left := ForPods(capacity, reserved)
	if memory, disk := left.Memory().String(), left.StorageEphemeral().String(); memory != "3Gi" || disk != "100Gi" {
		t.Errorf("memory %s, disk %s, want 3Gi and 100Gi", memory, disk)
	}
}

// A node cannot reserve more than it has. It may reserve all of it.
func TestReservationsFitTheCapacity(t *testing.T) {
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("10"), v1.ResourceMemory: resource.MustParse("16Gi"), v1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
	}
	const kept = `invalid Node Allocatable configuration. Resource "%s" has a reservation of %s but capacity of %s. Expected capacity >= reservation.`
	for name, test := range map[string]struct {
		kube, system, hard map[string]string
		cpus               string
		whole              bool // the disk is not shared out
		want               string
	}{
		"nothing":             {},
		"all of it":           {kube: map[string]string{"cpu": "5", "memory": "8Gi"}, system: map[string]string{"cpu": "5", "memory": "8Gi"}},
		"CPUs":                {kube: map[string]string{"cpu": "6"}, system: map[string]string{"cpu": "4001m"}, want: fmt.Sprintf(kept, "cpu", "10001m", "10")},
		"listed CPUs":         {cpus: "0-10", want: fmt.Sprintf(kept, "cpu", "11", "10")},
		"memory":              {system: map[string]string{"memory": "17Gi"}, want: fmt.Sprintf(kept, "memory", "17Gi", "16Gi")},
		"memory's threshold":  {kube: map[string]string{"memory": "16Gi"}, hard: map[string]string{"memory.available": "1Gi"}, want: fmt.Sprintf(kept, "memory", "17Gi", "16Gi")},
		"the disk":            {kube: map[string]string{"ephemeral-storage": "20Gi"}, hard: map[string]string{"nodefs.available": "1Gi"}, want: fmt.Sprintf(kept, "ephemeral-storage", "21Gi", "20Gi")},
		"a disk as a whole":   {kube: map[string]string{"ephemeral-storage": "21Gi"}, whole: true},
		"what it has none of": {kube: map[string]string{"pid": "1000"}},
		"two": {
			kube: map[string]string{"cpu": "11", "memory": "20Gi"},
			want: fmt.Sprintf(kept, "cpu", "11", "10") + ` Resource "memory" has a reservation of 20Gi but capacity of 16Gi. Expected capacity >= reservation.`,
		},
		"no quantity": {kube: map[string]string{"cpu": "x"}, want: `reserved cpu "x" is not a quantity: ` + resource.ErrFormatWrong.Error()},
	} {
		got := ""
		c := &kubeletconfig.KubeletConfiguration{
			KubeReserved: test.kube, SystemReserved: test.system, EvictionHard: test.hard, ReservedSystemCPUs: test.cpus, LocalStorageCapacityIsolation: new(!test.whole),
		}
		if err := Check(c, capacity); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Pods get the processes that are not reserved. By default the node keeps a tenth,
// or those that it needs with many pods, and on a small machine half.
func TestProcesses(t *testing.T) {
	for _, tt := range []struct {
		machine  int64
		reserved string
		want     int64
	}{
		{4194304, "", 3774874}, {32768, "", 29492}, {10000, "", 7952}, {1000, "", 500},
		{32768, "1000", 31768}, {32768, "0", 32768}, {1000, "5k", 1},
	} {
		reserved := v1.ResourceList{}
		if tt.reserved != "" {
			reserved["pid"] = resource.MustParse(tt.reserved)
		}
		if got := Processes(tt.machine, reserved); got != tt.want {
			t.Errorf("%d with %q reserved: %d, want %d", tt.machine, tt.reserved, got, tt.want)
		}
	}
}
