package kubelet

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// A kubelet ends the pods that it made and that are no longer wanted. It leaves
// the pods of another kubelet on the same runtime and the same disk alone.
func TestPodsOfAnotherKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newBench(t), newBench(t)
		b.runtime, b.files = a.runtime, a.files
		b.configure = func(c *Config) { c.NodeName, c.RootDirectory = "beta", "/data/kubelet" }
		unmarked, err := a.runtime.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "unmarked", Namespace: "default", Uid: "unmarked"},
			Labels:   map[string]string{kubelettypes.KubernetesPodUIDLabel: "unmarked"},
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		a.start()
		defer func() { a.stop() }()
		a.create(pod("theirs", func(p *v1.Pod) {
			p.UID, p.Spec.Containers[0].Name = types.UID("6f1c9d3e-0a2b-4c5d-8e9f-001122334455"), "theirs"
			p.Annotations = map[string]string{"coracle.io/kubelet.root": "/data/kubelet"} // users cannot give pods away
		}))
		b.start()
		defer func() { b.stop() }()
		b.create(pod("ours", func(p *v1.Pod) { p.Spec.Containers[0].Name = "ours" }))
		b.after(time.Minute)
		theirs := a.live("theirs")
		if theirs == "" || b.live("ours") == "" {
			t.Fatalf("containers %v", b.containers())
		}
		b.stop()
		if err := b.api.CoreV1().Pods("default").Delete(t.Context(), "ours", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.after(10 * time.Minute)
		if id := a.live("theirs"); id != theirs {
			t.Errorf("the other kubelet's container is %q, before %q", id, theirs)
		}
		if _, err := a.files.Stat("/var/log/pods/default_theirs_6f1c9d3e-0a2b-4c5d-8e9f-001122334455"); err != nil {
			t.Errorf("the other kubelet's logs: %v", err)
		}
		if status, err := a.runtime.PodSandboxStatus(t.Context(), unmarked, false); err != nil || status.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			t.Errorf("the sandbox of another program: %v %v", status, err)
		}
		if id := b.live("ours"); id != "" {
			t.Errorf("a pod of this kubelet that is gone still has %q", id)
		}
	})
}

// A kubelet leaves alone the logs of pods of another kubelet on the same disk
// that has a runtime of its own.
func TestLogsOfAnotherKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newBench(t), newBench(t)
		b.files = a.files
		b.configure = func(c *Config) { c.NodeName, c.RootDirectory = "beta", "/data/kubelet" }
		a.start()
		defer func() { a.stop() }()
		a.create(pod("theirs", func(p *v1.Pod) { p.UID = types.UID("6f1c9d3e-0a2b-4c5d-8e9f-001122334455") }))
		a.after(time.Second)
		b.start()
		defer func() { b.stop() }()
		b.after(5 * time.Minute)
		if _, err := a.files.Stat("/var/log/pods/default_theirs_6f1c9d3e-0a2b-4c5d-8e9f-001122334455"); err != nil {
			t.Errorf("the logs of a pod that runs: %v", err)
		}
	})
}

// Kubelets of earlier versions left pods without marks and without directories.
// The containers show which kubelet the pods belong to.
func TestUnmarkedPodsThatEnded(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		sandboxes := map[string]string{}
		for uid, root := range map[string]string{"ours": "/var/lib/kubelet", "theirs": "/data/kubelet"} {
			labels := map[string]string{kubelettypes.KubernetesPodUIDLabel: uid}
			config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid}, Labels: labels}
			sandbox, err := b.runtime.RunPodSandbox(t.Context(), config, "")
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.runtime.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Labels: labels, Image: &runtimeapi.ImageSpec{Image: "example.com/app:1"},
				Mounts: []*runtimeapi.Mount{{ContainerPath: "/etc/hosts", HostPath: root + "/pods/" + uid + "/etc-hosts"}},
			}, config)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.runtime.StopPodSandbox(t.Context(), sandbox); err != nil {
				t.Fatal(err)
			}
			sandboxes[uid] = sandbox
		}
		b.after(5 * time.Minute)
		for uid, left := range map[string]bool{"ours": false, "theirs": true} {
			if _, err := b.runtime.PodSandboxStatus(t.Context(), sandboxes[uid], false); (err == nil) != left {
				t.Errorf("the sandbox of %s: %v", uid, err)
			}
		}
	})
}
