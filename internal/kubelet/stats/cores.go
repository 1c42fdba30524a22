package stats

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cpuUse is what a container had used of the CPU at a time, and its average use until
// then, in nanocores, nil if that is not known.
type cpuUse struct {
	total uint64 // nanoseconds
	at    int64  // nanoseconds
	cores *uint64
}

// coresPeriod is the least time over which the use of the CPU is averaged. Several clients
// may ask for it, each at times of its own.
const coresPeriod = 5 * time.Second

// cores returns the average use of the CPU of a container since an earlier measurement, in
// nanocores, for runtimes that do not tell it. It returns nil if there is none yet.
func (p *Provider) cores(id string, cpu *runtimeapi.CpuUsage) *uint64 {
	if cpu.GetUsageCoreNanoSeconds() == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := cpuUse{total: cpu.GetUsageCoreNanoSeconds().GetValue(), at: cpu.GetTimestamp()}
	last, known := p.cpuUsed[id]
	if known && now.total >= last.total && now.at >= last.at {
		took := now.at - last.at
		if took < int64(coresPeriod) {
			return last.cores
		}
		now.cores = pointer(uint64(float64(now.total-last.total) / float64(took) * float64(time.Second)))
	}
	if p.cpuUsed == nil {
		p.cpuUsed = map[string]cpuUse{}
	}
	p.cpuUsed[id] = now
	return now.cores
}

// forgetCores forgets the containers that the runtime lists no more.
func (p *Provider) forgetCores(listed map[types.UID][]*runtimeapi.ContainerStats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cpuUsed) == 0 {
		return
	}
	kept := map[string]cpuUse{}
	for _, list := range listed {
		for _, s := range list {
			id := s.GetAttributes().GetId()
			if used, known := p.cpuUsed[id]; known {
				kept[id] = used
			}
		}
	}
	p.cpuUsed = kept
}
