package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/allocatable"
)

// facts reads everything that the status shows from the machine and the runtime.
func (r *Reporter) facts(ctx context.Context) (Facts, error) {
	capacity, err := r.config.capacity()
	if err != nil {
		return Facts{}, err
	}
	f := Facts{
		Hostname: r.config.Name, IPs: r.config.IPs.Now(), Capacity: capacity, Allocatable: allocatable.ForPods(capacity, r.reserved),
		MaxPods: r.maxPods, Info: r.config.Machine.Info(), Port: r.config.Configuration.Port, MaxImages: int(*r.config.Configuration.NodeStatusMaxImages),
		Gates: r.config.Features, Now: time.Now(),
	}
	capacity, allocatable := r.config.Devices()
	f.Capacity = maps.Clone(f.Capacity)
	maps.Copy(f.Capacity, capacity)
	maps.Copy(f.Allocatable, allocatable)
	f.Info.ContainerRuntimeVersion, f.Info.KubeletVersion = r.config.Versions()
	f.VolumesInUse = r.config.VolumesInUse()
	pressure := r.config.Pressure()
	f.MemoryPressure, f.DiskPressure = slices.Contains(pressure, v1.NodeMemoryPressure), slices.Contains(pressure, v1.NodeDiskPressure)
	f.PIDPressure = slices.Contains(pressure, v1.NodePIDPressure)
	r.mu.Lock()
	down := r.runtimeDown
	r.mu.Unlock()
	if down != nil {
		return r.unresponsive(f, fmt.Sprintf("container runtime is down: %v", down)), nil
	}
	status, err := r.config.Runtime.Status(ctx, false)
	if err != nil {
		return r.unresponsive(f, "container runtime status check may not have completed yet"), nil
	}
	if why := unmet(status.GetStatus(), runtimeapi.RuntimeReady); why != "" {
		f.NotReady = append(f.NotReady, "container runtime not ready: "+why)
	}
	network := unmet(status.GetStatus(), runtimeapi.NetworkReady)
	if network != "" {
		network = "container runtime network not ready: " + network
		f.NotReady = append(f.NotReady, network)
	}
	f.Handlers, f.Features = status.GetRuntimeHandlers(), status.GetFeatures()
	f.Images, _ = r.config.Images.ListImages(ctx, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered, r.network = &f, network
	return f, nil
}

// unmet describes a condition that a runtime does not meet, "" if it does. It does not
// meet one that it does not mention.
func unmet(s *runtimeapi.RuntimeStatus, name string) string {
	found := &runtimeapi.RuntimeCondition{}
	for _, c := range s.GetConditions() {
		if c.GetType() == name {
			found = c
		}
	}
	if found.GetStatus() {
		return ""
	}
	return fmt.Sprintf("%s=false reason:%s message:%s", name, found.GetReason(), found.GetMessage())
}

// NetworkNotReady returns why the runtime had no network for pods when it was last
// asked, "" if it had one or nobody asks it, because there is no Node object.
func (r *Reporter) NetworkNotReady() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node == nil {
		return ""
	}
	return r.network
}

// runtimePatience is how long the container runtime may be unresponsive before
// the node is not ready. It is upstream's value. A restart of the runtime takes
// less, and containers run on during it.
const runtimePatience = 30 * time.Second

// unresponsive completes the facts while the runtime does not answer. It uses
// the last answer, or, after runtimePatience, makes the node not ready for the
// given reason.
func (r *Reporter) unresponsive(f Facts, reason string) Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered == nil || f.Now.Sub(r.answered.Now) >= runtimePatience {
		f.NotReady = append(f.NotReady, reason)
		return f
	}
	f.NotReady, f.Handlers, f.Features, f.Images = r.answered.NotReady, r.answered.Handlers, r.answered.Features, r.answered.Images
	return f
}
