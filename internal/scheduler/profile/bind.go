package profile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/supervise"
)

// RunReservePlugins reserves; if one fails the caller runs Unreserve.
func (p *Profile) RunReservePlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node string) (status *framework.Status) {
	if len(p.points.reserve) == 0 {
		return nil
	}
	began := time.Now()
	defer func() { p.took("Reserve", status, began) }()
	c, _ := p.cycles.Get(state)
	for _, plugin := range p.points.reserve {
		began := c.began()
		s := plugin.Reserve(ctx, state, pod, node)
		if p.samples.ran("Reserve", plugin, s, began); !s.IsSuccess() {
			return described(s, plugin, "running Reserve plugin %q: %w")
		}
	}
	return nil
}

// RunUnreservePlugins undoes Reserve in reverse order. A plugin that panics does
// not keep the others from it, nor the pod on its node.
func (p *Profile) RunUnreservePlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node string) {
	defer p.took("Unreserve", nil, time.Now())
	for i := len(p.points.reserve) - 1; i >= 0; i-- {
		plugin := p.points.reserve[i]
		supervise.Contain(ctx, plugin.Name(), func() { plugin.Unreserve(ctx, state, pod, node) })
	}
}

// RunPermitPlugins asks whether the pod may be bound. With Wait the pod is
// among the WaitingPods, and WaitOnPermit waits.
func (p *Profile) RunPermitPlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node string) (status *framework.Status) {
	if len(p.points.permit) == 0 {
		return nil
	}
	began := time.Now()
	defer func() { p.took("Permit", status, began) }()
	waits := map[string]time.Duration{}
	c, _ := p.cycles.Get(state)
	resizing := pod.IsResizing()
	for _, plugin := range p.points.permit {
		if resizing && !framework.HandlesDeferredResizes(plugin) {
			continue
		}
		began := c.began()
		s, timeout := plugin.Permit(ctx, state, pod, node)
		p.samples.ran("Permit", plugin, s, began)
		switch {
		case s.IsWait():
			waits[plugin.Name()] = min(timeout, framework.MaxPermitWait)
		case !s.IsSuccess():
			return described(s, plugin, "running Permit plugin %q: %w")
		}
	}
	if len(waits) == 0 {
		return nil
	}
	p.Waiting.add(pod, node, waits)
	return framework.NewStatus(framework.Wait, "", "one or more plugins asked to wait and no plugin rejected pod \""+pod.Pod.Name+"\"")
}

// DecidesTogether returns the plugin that wants the pod's group decided together,
// or nil.
func (p *Profile) DecidesTogether(pod *framework.PodInfo) framework.PodGroupPlugin {
	if pod.Pod.Spec.SchedulingGroup == nil || pod.IsResizing() {
		return nil
	}
	for _, plugin := range p.points.permit {
		if g, ok := plugin.(framework.PodGroupPlugin); ok {
			if _, together := g.Missing(pod); together {
				return g
			}
		}
	}
	return nil
}

// WaitOnPermit waits until all Permit plugins allow the pod or one rejects it.
func (p *Profile) WaitOnPermit(ctx context.Context, pod *framework.PodInfo) *framework.Status {
	if p.Waiting.Get(pod.Pod.UID) == nil {
		return nil
	}
	began := time.Now()
	status := p.Waiting.wait(ctx, pod.Pod.UID)
	if p.observeWait != nil {
		p.observeWait(status.Code(), time.Since(began))
	}
	if status.Code() == framework.Error {
		return framework.AsStatus(status.Plugin(), fmt.Errorf("waiting on permit for pod: %w", status.AsError()))
	}
	return status
}

// RunPreBindPreFlights asks which plugins have something to do before the
// binding. It belongs to the scheduling cycle. Skip means that none has.
func (p *Profile) RunPreBindPreFlights(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node string) (status *framework.Status) {
	began := time.Now()
	defer func() { p.took("PreBindPreFlight", status, began) }()
	c, _ := p.cycles.Get(state)
	c.preBind = nil
	for _, plugin := range p.points.preBind {
		s := plugin.PreBindPreFlight(ctx, state, pod, node)
		switch {
		case s.IsSuccess():
			c.preBind = append(c.preBind, plugin)
		case !s.IsSkip():
			return described(s, plugin, "running PreBindPreFlight %q: %w")
		}
	}
	if len(c.preBind) == 0 {
		return framework.NewStatus(framework.Skip, "")
	}
	return nil
}

// RunPreBindPlugins prepares the binding, by the plugins that
// RunPreBindPreFlights found to have something to do, unless it is interrupted by
// framework.Handle.CancelPreBind. Several plugins run side by side, since each may take
// minutes; the first that fails ends the others.
func (p *Profile) RunPreBindPlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node string) (status *framework.Status) {
	c, _ := p.cycles.Get(state)
	if len(c.preBind) == 0 {
		return nil
	}
	began := time.Now()
	defer func() { p.took("PreBind", status, began) }()
	run := func(ctx context.Context, plugin framework.PreBindPlugin) *framework.Status {
		began := c.began()
		s := plugin.PreBind(ctx, state, pod, node)
		if p.samples.ran("PreBind", plugin, s, began); !s.IsSuccess() {
			return described(s, plugin, "running PreBind plugin %q: %w")
		}
		return nil
	}
	return p.preBinding.run(ctx, pod.Pod.UID, func(ctx context.Context) *framework.Status {
		if len(c.preBind) == 1 {
			return run(ctx, c.preBind[0])
		}
		return sideBySide(ctx, c.preBind, run)
	})
}

// sideBySide calls run for each plugin at the same time. When one fails it cancels the
// context of the others, and waits for them. A panic is an error.
func sideBySide(ctx context.Context, plugins []framework.PreBindPlugin, run func(context.Context, framework.PreBindPlugin) *framework.Status) *framework.Status {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed *framework.Status
	var first sync.Once
	panics := supervise.ForEach(len(plugins), func(i int) error {
		done := false
		defer func() {
			if !done {
				cancel()
			}
		}()
		s := run(ctx, plugins[i])
		if done = s.IsSuccess(); !done {
			first.Do(func() { failed = s })
		}
		return nil
	})
	for i, err := range panics {
		if err != nil {
			return failure(framework.AsStatus("", err), plugins[i], "running PreBind plugin %q: %w")
		}
	}
	return failed
}

// RunBindPlugins binds by an extender, or else by the first plugin that does
// not skip.
func (p *Profile) RunBindPlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node string) (status *framework.Status) {
	began := time.Now()
	defer func() { p.took("Bind", status, began) }()
	if p.extenders != nil {
		if bound, err := p.extenders.Bind(ctx, pod, node); bound {
			return framework.AsStatus(framework.ExtenderName, err)
		}
	}
	status = framework.NewStatus(framework.Skip, "")
	c, _ := p.cycles.Get(state)
	for _, plugin := range p.points.bind {
		began := c.began()
		status = plugin.Bind(ctx, state, pod, node)
		p.samples.ran("Bind", plugin, status, began)
		switch {
		case status.IsSuccess():
			return nil
		case !status.IsSkip():
			return described(status, plugin, "running Bind plugin %q: %w")
		}
	}
	return status
}

// RunPostBindPlugins tells the plugins of a binding.
func (p *Profile) RunPostBindPlugins(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node string) {
	defer p.took("PostBind", nil, time.Now())
	for _, plugin := range p.points.postBind {
		plugin.PostBind(ctx, state, pod, node)
	}
}

// described returns a plugin's status that is no success: an error names the
// extension point and the plugin, in the format that gets the plugin's name and the
// error.
func described(s *framework.Status, plugin framework.Plugin, format string) *framework.Status {
	if s.IsRejected() {
		return s
	}
	return failure(s, plugin, format)
}

// failure is described for extension points that must not reject: that is an error, too.
func failure(s *framework.Status, plugin framework.Plugin, format string) *framework.Status {
	return framework.AsStatus(plugin.Name(), fmt.Errorf(format, plugin.Name(), s.AsError()))
}
