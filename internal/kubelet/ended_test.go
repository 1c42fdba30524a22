package kubelet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/metrics"
)

// counted returns the sum of a counter's series with these labels, such as
// exit_code=139.
func counted(t *testing.T, r *metrics.Registry, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := r.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var all []string
			for _, l := range m.GetLabel() {
				all = append(all, l.GetName()+"="+l.GetValue())
			}
			text, matches := " "+strings.Join(all, " ")+" ", true
			for _, l := range labels {
				matches = matches && strings.Contains(text, " "+l+" ")
			}
			if matches {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Each end of a container is counted once, also by a kubelet that is restarted.
func TestEndedContainersAreCounted(t *testing.T) {
	const name = "kubelet_terminated_containers_total"
	synctest.Test(t, func(t *testing.T) {
		registry := metrics.NewRegistry(nil)
		b := newBench(t)
		b.configure = func(c *Config) { c.Metrics = registry }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("crash", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
		b.create(pod("again", func(p *v1.Pod) { p.Spec.Containers[0].Name = "second" }))
		b.after(time.Second)
		b.runtime.Exit(b.live("main"), 139)
		for range 3 {
			b.runtime.Exit(b.live("second"), 0)
			b.after(10 * time.Minute)
		}
		if n := counted(t, registry, name, "container_type=container", "exit_code=139"); n != 1 {
			t.Errorf("%v containers ended with 139, want 1", n)
		}
		if n := counted(t, registry, name, "container_type=container", "exit_code=0"); n != 3 {
			t.Errorf("%v containers ended with 0, want 3", n)
		}
		b.stop()
		registry = metrics.NewRegistry(nil)
		b.start()
		b.after(time.Minute)
		if n := counted(t, registry, name); n != 0 {
			t.Errorf("a restarted kubelet counts %v containers that ended before", n)
		}
	})
}
