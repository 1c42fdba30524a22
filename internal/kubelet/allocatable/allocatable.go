// Package allocatable computes what pods may request of a node from the
// configuration of the kubelet: upstream's Node Allocatable.
//
//	capacity ─┬─ systemReserved, kubeReserved ─┐ SystemReserved
//	          ├─ hard thresholds of memory and ┴ Reserved
//	          │  disk, huge pages
//	          └─ allocatable: what pods may request
package allocatable

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/topology"
)

// SystemReserved returns the sum of systemReserved and kubeReserved. Of CPUs it
// returns the number of reservedSystemCPUs, if there are any.
func SystemReserved(c *kubeletconfig.KubeletConfiguration) (v1.ResourceList, error) {
	total := v1.ResourceList{}
	for _, list := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		for name, text := range list {
			if !slices.Contains([]string{string(v1.ResourceCPU), string(v1.ResourceMemory), string(v1.ResourceEphemeralStorage), pids}, name) {
				return nil, fmt.Errorf("cannot reserve %q resource: only cpu, memory, ephemeral-storage and pid can be reserved", name)
			}
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reserved %s %q is not a quantity: %w", name, text, err)
			}
			if q.Sign() < 0 {
				return nil, fmt.Errorf("reserved %s %q must not be negative", name, text)
			}
			add(total, v1.ResourceName(name), q)
		}
	}
	cpus, err := topology.ParseCPUs(c.ReservedSystemCPUs)
	if err != nil {
		return nil, fmt.Errorf("unable to parse reservedSystemCPUs (--reserved-cpus) %s, error: %w", c.ReservedSystemCPUs, err)
	}
	if n := cpus.Size(); n > 0 {
		total[v1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return total, nil
}

// pids is the name of processes in systemReserved and kubeReserved.
const pids = "pid"

// leastProcesses is how many processes and threads a node keeps for itself by
// default, where it has twice as many: its own, the system's, and some 12 threads
// of the runtime's shim for each of 110 pods.
const leastProcesses = 2048

// Processes returns how many processes and threads all pods together may have, 1
// or more, of those that the machine can have. If reserved says nothing about
// them, the node keeps a tenth, but at least leastProcesses. Upstream reserves none by
// default, so that a fork bomb ends with the node.
func Processes(machine int64, reserved v1.ResourceList) int64 {
	kept := min(max(machine/10, leastProcesses), machine/2)
	if given, ok := reserved[pids]; ok {
		kept = given.Value()
	}
	return max(machine-kept, 1)
}

func add(total v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	sum := total[name]
	sum.Add(q)
	total[name] = sum
}

// Reserved returns what pods cannot request: SystemReserved and the hard
// eviction thresholds of memory and of the node's file system, which may be
// parts of the capacity.
func Reserved(c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList) (v1.ResourceList, error) {
	total, err := SystemReserved(c)
	if err != nil {
		return nil, err
	}
	for signal, name := range map[string]v1.ResourceName{"memory.available": v1.ResourceMemory, "nodefs.available": v1.ResourceEphemeralStorage} {
		text := c.EvictionHard[signal]
		if text == "" {
			continue
		}
		q, err := threshold(text, capacity[name])
		if err != nil {
			return nil, fmt.Errorf("evictionHard %s %q is not a quantity or a percentage: %w", signal, text, err)
		}
		if q.Sign() > 0 {
			add(total, name, q)
		}
	}
	return total, nil
}

// Check returns an error if more of a resource is reserved than the capacity has.
// Pods would have no limit of the memory then, as 0 is none. Without
// localStorageCapacityIsolation, the node has no capacity of ephemeral storage.
func Check(c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList) error {
	reserved, err := Reserved(c, capacity)
	if err != nil {
		return err
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		if isolated := c.LocalStorageCapacityIsolation; name == v1.ResourceEphemeralStorage && isolated != nil && !*isolated {
			continue
		}
		has, kept := capacity[name], reserved[name]
		if kept.Cmp(has) > 0 {
			wrong = append(wrong, fmt.Sprintf("Resource %q has a reservation of %s but capacity of %s. Expected capacity >= reservation.", name, kept.String(), has.String()))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("invalid Node Allocatable configuration. %s", strings.Join(wrong, " "))
	}
	return nil
}

// threshold returns the value of an eviction threshold. 100% means that there is
// none.
func threshold(text string, capacity resource.Quantity) (resource.Quantity, error) {
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		return resource.ParseQuantity(text)
	}
	p, err := strconv.ParseFloat(percent, 64)
	if err != nil || p == 100 {
		return resource.Quantity{}, err
	}
	return *resource.NewQuantity(int64(p/100*float64(capacity.Value())), resource.BinarySI), nil
}

// Of returns the capacity without what is reserved.
func Of(capacity, reserved v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		if r, ok := reserved[name]; ok {
			subtract(&left, r)
		}
		out[name] = left
	}
	return out
}

func subtract(from *resource.Quantity, q resource.Quantity) {
	if from.Sub(q); from.Sign() < 0 {
		from.Set(0)
	}
}

// ForPods returns the part of the capacity that pods may request. The kernel has
// set the memory of huge pages aside, so that it is not part of the memory.
func ForPods(capacity, reserved v1.ResourceList) v1.ResourceList {
	out := Of(capacity, reserved)
	memory, ok := out[v1.ResourceMemory]
	for name, q := range capacity {
		if ok && strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			subtract(&memory, q)
		}
	}
	if ok {
		out[v1.ResourceMemory] = memory
	}
	return out
}
