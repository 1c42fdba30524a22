package kubelet

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// Pods are counted by their source and by the part of their life that they are in, also
// those that no source has any more, and those that come back.
func TestPodsAreCounted(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour { return inmemory.Behaviour{IgnoreStop: true} }
		want := func(when string, want map[string]float64) {
			t.Helper()
			got := b.metrics()
			for name, n := range want {
				if value, ok := got["kubelet_"+name]; !ok || value != n {
					t.Errorf("%s: %s is %v, want %v", when, name, value, n)
				}
			}
		}
		named := func(name string) func(p *v1.Pod) {
			return func(p *v1.Pod) {
				p.Spec.RestartPolicy, p.Spec.Containers[0].Name = v1.RestartPolicyNever, name
			}
		}
		const manifest = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 60, containers: [{name: main, image: "example.com/app:1"}]}}`
		b.writeManifest(manifest)
		b.create(pod("runs", named("runs")))
		b.create(pod("job", named("job")))
		b.create(pod("gone", named("gone")))
		b.create(pod("big", func(p *v1.Pod) { p.Spec.Containers[0].Resources = cpus("5") }))
		b.after(25 * time.Second)
		b.runtime.Exit(b.live("job"), 0)
		b.delete("gone", 30)
		b.after(5 * time.Second)
		want("with pods of both sources", map[string]float64{
			"desired_pods,": 4, "desired_pods,true": 1, "active_pods,": 2, "active_pods,true": 1, "mirror_pods": 1,
			"working_pods,desired,sync,": 1, "working_pods,desired,terminating,": 1, "working_pods,desired,terminated,": 1,
			"working_pods,desired,sync,true": 1, "working_pods,orphan,terminating,true": 0, "working_pods,runtime_only,terminating,unknown": 0,
			"restarted_pods_total,": 0, "restarted_pods_total,true": 0, "orphaned_runtime_pods_total": 0,
		})

		if err := b.files.Remove(manifestPath); err != nil {
			t.Fatal(err)
		}
		b.after(25 * time.Second)
		want("without the manifest", map[string]float64{
			"desired_pods,true": 0, "active_pods,true": 0, "working_pods,desired,sync,true": 0, "working_pods,orphan,terminating,true": 1,
		})
		b.writeManifest(manifest)
		b.after(2 * time.Minute)
		want("with the manifest again", map[string]float64{
			"desired_pods,true": 1, "working_pods,desired,sync,true": 1, "working_pods,orphan,terminating,true": 0, "restarted_pods_total,true": 1, "restarted_pods_total,": 0,
		})

		b.stop()
		if err := b.api.CoreV1().Pods("default").Delete(t.Context(), "runs", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.after(10 * time.Second)
		want("with a pod that was deleted meanwhile", map[string]float64{
			"orphaned_runtime_pods_total": 1, "working_pods,runtime_only,terminating,unknown": 1, "working_pods,desired,sync,": 0,
		})
		b.after(time.Minute)
		want("after its end", map[string]float64{
			"orphaned_runtime_pods_total": 1, "working_pods,runtime_only,terminating,unknown": 0, "working_pods,runtime_only,terminated,unknown": 0,
		})
	})
}
