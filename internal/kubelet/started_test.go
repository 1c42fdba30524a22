package kubelet

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// metrics returns the values of the kubelet's metrics by their names and the values
// of their labels, and how many values its histograms have got.
func (b *bench) metrics() map[string]float64 {
	b.t.Helper()
	families, err := b.kubelet.config.Metrics.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "," + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// Attempts to start pods and containers are counted, and those that fail, as upstream:
// also those without an image, and those whose hook fails.
func TestStartsAreCounted(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{Exec: func([]string) (string, int32) { return "the hook fails", 1 }}
		}
		b.create(pod("good"))
		b.create(pod("bad", func(p *v1.Pod) {
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "missing"}}}}
		}))
		b.create(pod("empty", func(p *v1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "example.com/absent:1", v1.PullNever
		}))
		b.create(pod("hooked", func(p *v1.Pod) {
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}}
		}))
		b.after(5 * time.Second)
		counted := b.metrics()
		for name, want := range map[string]float64{
			"kubelet_started_pods_total": 4, "kubelet_started_pods_errors_total": 0, "kubelet_started_user_namespaced_pods_total": 0,
		} {
			if got, ok := counted[name]; !ok || got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		all := 1.0
		for _, code := range []string{"CreateContainerConfigError", "ErrImageNeverPull", "PostStartHookError"} {
			n := counted["kubelet_started_containers_errors_total,"+code+",container"]
			if n < 1 {
				t.Errorf("%v containers failed with %s", n, code)
			}
			all += n
		}
		if got := counted["kubelet_started_containers_total,container"]; got != all {
			t.Errorf("%v attempts to start containers, want %v", got, all)
		}
	})
}

// A pod with a user namespace whose containers do not start counts as failed, once for
// its sandbox.
func TestFailuresInUserNamespacesAreCounted(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		inside := func(p *v1.Pod) { p.Spec.HostUsers = new(bool) }
		missing := func(p *v1.Pod) {
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "missing"}}}}
		}
		b.create(pod("good", inside))
		b.create(pod("bad", inside, missing))
		b.create(pod("outside", missing))
		b.after(time.Minute)
		counted := b.metrics()
		for name, want := range map[string]float64{
			"kubelet_started_user_namespaced_pods_total": 2, "kubelet_started_user_namespaced_pods_errors_total": 1,
		} {
			if got := counted[name]; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// A pod of the API server counts as started when the kubelet sees that it runs.
func TestStartupLatency(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", func(p *v1.Pod) { p.CreationTimestamp = metav1.Now() }))
		b.after(time.Minute)
		got := b.metrics()
		for _, name := range []string{"kubelet_pod_start_total_duration_seconds", "kubelet_pod_start_sli_duration_seconds"} {
			if got[name] != 1 {
				t.Errorf("%s has %v values, want 1", name, got[name])
			}
		}
	})
}

// Programs that watch the pods are told of new ones and of those that end.
func TestPodsAreWatched(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		changed, stop := b.kubelet.pods.Watch()
		told := func() bool {
			b.after(time.Minute)
			select {
			case <-changed:
				return true
			default:
				return false
			}
		}
		b.create(pod("web"))
		if !told() {
			t.Error("not told of the pod")
		}
		b.delete("web", 1)
		if !told() {
			t.Error("not told of its end")
		}
		stop()
		if b.create(pod("other")); told() {
			t.Error("told of a pod after the watch")
		}
	})
}
