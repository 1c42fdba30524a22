package kubelet

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Of a large pod that has ended, the kubelet keeps its status and what it needs to show
// and to remove the pod, and no longer the objects that the pod refers to.
func TestEndedPodIsNotKeptWhole(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		const large = 100_000
		settings := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default"}, Data: map[string]string{"large": strings.Repeat("x", large)}}
		if _, err := b.api.CoreV1().ConfigMaps("default").Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.create(pod("job", func(p *v1.Pod) {
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			c := &p.Spec.Containers[0]
			c.Args = []string{strings.Repeat("x", large)}
			c.EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}
		}))
		b.after(time.Minute)
		kept := func() (ofPod int, ofObjects int64) {
			return b.kubelet.pods.Pod("default", "job", "").Size(), b.kubelet.objects.Kept("uid-job")
		}
		if pod, objects := kept(); pod < large || objects < large {
			t.Fatalf("of the running pod are kept %d bytes, and %d of its objects", pod, objects)
		}
		b.runtime.Exit(b.live("main"), 3)
		b.after(time.Minute)
		if pod, objects := kept(); pod > large/10 || objects > 0 {
			t.Errorf("of the ended pod are kept %d bytes, and %d of its objects", pod, objects)
		}
		if st := b.get("job").Status; st.Phase != v1.PodFailed || st.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
			t.Errorf("its status is %+v", st)
		}
		b.keepsStatusesAcrossARestart("job")
		if pod, objects := kept(); pod > large/10 || objects > 0 {
			t.Errorf("the next kubelet keeps %d bytes of it, and %d of its objects", pod, objects)
		}
		b.delete("job", 30)
		b.after(time.Minute)
		if p := b.get("job"); p != nil {
			t.Errorf("the deleted pod is there: %+v", p.Status)
		}
	})
}

// Of a pod that has ended and is still large, the kubelet keeps no more than how it ended.
// Its status, and its containers, whose logs can be read, stay until it is deleted.
func TestOnlyTheEndOfALargePodIsKept(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("job", func(p *v1.Pod) {
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			p.Labels = map[string]string{}
			for i := range 270 {
				p.Labels[fmt.Sprintf("label-%03d", i)] = strings.Repeat("x", 50)
			}
		}))
		b.after(time.Minute)
		b.runtime.Exit(b.live("main"), 3)
		b.after(time.Minute)
		kept := func() {
			t.Helper()
			p := b.kubelet.pods.Pod("default", "job", "")
			if n := p.Size(); n > 1000 || p.Status.Phase != v1.PodFailed {
				t.Errorf("of the pod are kept %d bytes: %v", n, p)
			}
			if n := len(b.containers()); n != 1 {
				t.Errorf("it has %d containers", n)
			}
		}
		kept()
		if st := b.get("job").Status.ContainerStatuses; len(st) != 1 || st[0].State.Terminated == nil || st[0].State.Terminated.ExitCode != 3 {
			t.Errorf("its containers are %+v", st)
		}
		b.keepsStatusesAcrossARestart("job")
		kept()
		b.delete("job", 30)
		b.after(time.Minute)
		if p := b.get("job"); p != nil || len(b.containers()) != 0 {
			t.Errorf("the deleted pod is there: %+v", p)
		}
	})
}

// Showing a large pod, as at each request for its logs, does not copy it.
func TestShownPodIsNotCopied(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", func(p *v1.Pod) {
			for i := range 10_000 {
				p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: "x"})
			}
		}))
		b.after(time.Minute)
		shown := b.kubelet.pods.Pod("default", "web", "")
		if shown == nil || shown.Status.Phase != v1.PodRunning {
			t.Fatalf("the pod is %v", shown)
		}
		for i, again := range []*v1.Pod{b.kubelet.pods.Pod("default", "web", ""), b.kubelet.pods.Pods()[0]} {
			if &again.Spec.Containers[0].Env[0] != &shown.Spec.Containers[0].Env[0] {
				t.Errorf("%d: the variables of the pod are copied", i)
			}
		}
	})
}
