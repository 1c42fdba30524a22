package kubelet

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

func TestPodRunsAndEnds(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web"))
		p := b.get("web")
		if p.Status.Phase != v1.PodRunning || conditionOf(p, v1.PodReady) != v1.ConditionTrue || p.Status.PodIP == "" || p.Status.HostIP != "192.0.2.1" {
			t.Fatalf("the pod is not up: %+v", p.Status)
		}
		if got := p.Status.ContainerStatuses[0]; !strings.HasPrefix(got.ContainerID, "simulated://") || !got.Ready || got.RestartCount != 0 {
			t.Fatalf("container status: %+v", got)
		}
		if b.groups.Get("/kubepods/besteffort/poduid-web") == nil {
			t.Fatal("the pod has no control group")
		}
		b.delete("web", 30)
		if b.get("web") != nil {
			t.Fatalf("the pod is still there: %+v", b.get("web").Status)
		}
		b.after(time.Second)
		if left := b.containers(); len(left) > 0 {
			t.Fatalf("containers left: %v", left)
		}
		if names, _ := b.files.ReadDir("/var/lib/kubelet/pods"); len(names) > 0 {
			t.Fatalf("folders left: %v", names)
		}
		if b.groups.Get("/kubepods/besteffort/poduid-web") != nil {
			t.Fatal("the control group is left")
		}
	})
}

func TestGracePeriodEndsInKill(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour { return inmemory.Behaviour{IgnoreStop: true} }
		b.create(pod("stubborn"))
		b.delete("stubborn", 30)
		b.after(29 * time.Second)
		if b.get("stubborn") == nil {
			t.Fatal("gone before its grace period was over")
		}
		b.after(2 * time.Second)
		if b.get("stubborn") != nil {
			t.Fatal("still there after its grace period")
		}
	})
}

func TestShorterGraceInterruptsTheLonger(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour { return inmemory.Behaviour{IgnoreStop: true} }
		b.create(pod("stubborn"))
		b.delete("stubborn", 600)
		b.after(10 * time.Second)
		b.delete("stubborn", 3)
		b.after(4 * time.Second)
		if b.get("stubborn") != nil {
			t.Fatal("the shorter grace period was not obeyed")
		}
	})
}

func TestCrashLoopBacksOff(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{RunFor: time.Second, ExitCode: 3}
		}
		b.create(pod("crash"))
		b.after(1500 * time.Millisecond) // first exit: restarted at once
		if got := b.get("crash").Status.ContainerStatuses[0]; got.RestartCount != 1 || got.State.Running == nil || got.LastTerminationState.Terminated.ExitCode != 3 {
			t.Fatalf("after the first exit: %+v", got)
		}
		b.after(1500 * time.Millisecond) // second exit: 10 s
		got := b.get("crash").Status.ContainerStatuses[0]
		if got.State.Waiting == nil || got.State.Waiting.Reason != "CrashLoopBackOff" || !strings.HasPrefix(got.State.Waiting.Message, "back-off 10s restarting failed container=main pod=crash_default(uid-crash)") {
			t.Fatalf("after the second exit: %+v", got.State)
		}
		b.runtime.Latency = time.Millisecond
		before := b.runtime.Listings.Load()
		b.after(8 * time.Second)
		if looks := b.runtime.Listings.Load() - before; looks > 5 {
			t.Fatalf("the kubelet looked %d times at a pod that only waits", looks)
		}
		b.runtime.Latency = 0
		b.after(2100 * time.Millisecond) // third run over: 20 s
		if got := b.get("crash").Status.ContainerStatuses[0]; got.RestartCount != 2 || !strings.Contains(got.State.Waiting.Message, "back-off 20s") {
			t.Fatalf("after the third exit: %+v %+v", got, got.State)
		}
		b.after(time.Hour)
		got = b.get("crash").Status.ContainerStatuses[0]
		if got.State.Waiting == nil || !strings.Contains(got.State.Waiting.Message, "back-off 5m0s") || got.RestartCount < 14 || got.RestartCount > 18 {
			t.Fatalf("after an hour: %d %+v", got.RestartCount, got.State)
		}
		if phase := b.get("crash").Status.Phase; phase != v1.PodRunning {
			t.Fatalf("phase %s", phase)
		}
		if n := len(b.containers()); n > 2 {
			t.Fatalf("%d dead containers are kept", n)
		}
	})
}

func TestRestartPolicies(t *testing.T) {
	for _, test := range []struct {
		policy v1.RestartPolicy
		code   int32
		phase  v1.PodPhase
	}{
		{v1.RestartPolicyNever, 0, v1.PodSucceeded},
		{v1.RestartPolicyNever, 1, v1.PodFailed},
		{v1.RestartPolicyOnFailure, 0, v1.PodSucceeded},
		{v1.RestartPolicyOnFailure, 1, v1.PodRunning},
		{v1.RestartPolicyAlways, 0, v1.PodRunning},
	} {
		t.Run(string(test.policy), func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
					return inmemory.Behaviour{RunFor: time.Second, ExitCode: test.code}
				}
				b.create(pod("job", func(p *v1.Pod) { p.Spec.RestartPolicy = test.policy }))
				b.after(5 * time.Second)
				if got := b.get("job").Status.Phase; got != test.phase {
					t.Fatalf("phase %s, want %s: %+v", got, test.phase, b.get("job").Status)
				}
				if test.phase != v1.PodRunning && b.get("job").Status.ContainerStatuses[0].State.Terminated == nil {
					t.Fatal("the container's end is not reported")
				}
			})
		})
	}
}

// A client that waits for Running can attach to the container: no status shows a
// pod as Running whose only command has already ended.
func TestBriefCommandIsNeverShownRunning(t *testing.T) {
	const shown = 300 * time.Millisecond // what a container must have run for
	for _, test := range []struct {
		policy v1.RestartPolicy
		lasts  time.Duration
		at     map[time.Duration]v1.PodPhase
	}{
		{v1.RestartPolicyNever, shown / 3, map[time.Duration]v1.PodPhase{0: v1.PodPending, shown / 2: v1.PodSucceeded}},
		{v1.RestartPolicyNever, 3 * shown, map[time.Duration]v1.PodPhase{shown / 2: v1.PodPending, 2 * shown: v1.PodRunning, 4 * shown: v1.PodSucceeded}},
		{v1.RestartPolicyAlways, 3 * shown, map[time.Duration]v1.PodPhase{0: v1.PodRunning}},
	} {
		run(t, func(t *testing.T, b *bench) {
			b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour { return inmemory.Behaviour{RunFor: test.lasts} }
			b.create(pod("job", func(p *v1.Pod) { p.Spec.RestartPolicy = test.policy; p.Status.Phase = v1.PodPending }))
			var passed time.Duration
			for _, when := range slices.Sorted(maps.Keys(test.at)) {
				b.after(when - passed)
				passed = when
				if got := b.get("job").Status.Phase; got != test.at[when] {
					t.Errorf("%s, a command of %v: after %v %s, want %s", test.policy, test.lasts, when, got, test.at[when])
				}
			}
		})
	}
}

func TestAdoptionAfterRestart(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1,
				ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
		}))
		b.after(time.Second)
		before := b.get("web").Status
		if !before.ContainerStatuses[0].Ready {
			t.Fatalf("not ready: %+v", before)
		}
		ids := b.containers()
		b.stop()
		b.start()
		b.after(time.Minute)
		after := b.get("web").Status
		if !slices.Equal(ids, b.containers()) || after.ContainerStatuses[0].RestartCount != 0 || after.ContainerStatuses[0].ContainerID != before.ContainerStatuses[0].ContainerID {
			t.Fatalf("not adopted: %+v", after.ContainerStatuses)
		}
		for i, c := range after.Conditions {
			if !c.LastTransitionTime.Equal(&before.Conditions[i].LastTransitionTime) {
				t.Errorf("condition %s went to and fro", c.Type)
			}
		}
	})
}

func TestLivenessRestarts(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var sick atomic.Bool
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
			return inmemory.Behaviour{Exec: func([]string) (string, int32) {
				if sick.Load() {
					return "sick", 1
				}
				return "", 0
			}}
		}
		b.create(pod("web", func(p *v1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &v1.Probe{PeriodSeconds: 5, FailureThreshold: 2, SuccessThreshold: 1,
				ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}}
		}))
		b.after(20 * time.Second)
		if n := b.get("web").Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Fatalf("restarted %d times while healthy", n)
		}
		sick.Store(true)
		b.after(10 * time.Second)
		if n := b.get("web").Status.ContainerStatuses[0].RestartCount; n != 1 {
			t.Fatalf("restarted %d times", n)
		}
		events, _ := b.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		var messages []string
		for _, e := range events.Items {
			messages = append(messages, e.Reason+": "+e.Message)
		}
		for _, want := range []string{"Unhealthy: Liveness probe failed: sick", "Killing: Container main failed liveness probe, will be restarted"} {
			if !slices.Contains(messages, want) {
				t.Errorf("no event %q in %q", want, messages)
			}
		}
	})
}

func TestInitContainersAndSidecar(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		var order []string
		b.runtime.Behave = func(c *runtimeapi.ContainerConfig) inmemory.Behaviour {
			order = append(order, c.GetMetadata().GetName())
			if strings.HasPrefix(c.GetMetadata().GetName(), "init") {
				return inmemory.Behaviour{RunFor: time.Second}
			}
			return inmemory.Behaviour{}
		}
		always := v1.ContainerRestartPolicyAlways
		b.create(pod("web", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{
				{Name: "init-one", Image: "example.com/app:1"},
				{Name: "side", Image: "example.com/app:1", RestartPolicy: &always},
				{Name: "init-two", Image: "example.com/app:1"},
			}
		}))
		p := b.get("web")
		if p.Status.Phase != v1.PodPending || conditionOf(p, v1.PodInitialized) != v1.ConditionFalse || p.Status.ContainerStatuses[0].State.Waiting.Reason != "PodInitializing" {
			t.Fatalf("while initializing: %+v", p.Status)
		}
		b.after(3 * time.Second)
		p = b.get("web")
		if p.Status.Phase != v1.PodRunning || conditionOf(p, v1.PodReady) != v1.ConditionTrue {
			t.Fatalf("after initializing: %+v", p.Status)
		}
		if want := []string{"init-one", "side", "init-two", "main"}; !slices.Equal(order, want) {
			t.Fatalf("order %v, want %v", order, want)
		}
	})
}

func TestImagePullBacksOff(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Images().FailPulls("example.com/app:1", errors.New("no such image"))
		b.create(pod("web"))
		got := b.get("web").Status.ContainerStatuses[0].State.Waiting
		if got == nil || got.Reason != "ImagePullBackOff" && got.Reason != "ErrImagePull" {
			t.Fatalf("state %+v", got)
		}
		b.after(2 * time.Minute)
		if n := b.runtime.Images().Pulls("example.com/app:1"); n < 3 || n > 5 {
			t.Fatalf("%d pulls in two minutes", n)
		}
		b.runtime.Images().FailPulls("example.com/app:1", nil)
		b.after(3 * time.Minute)
		if p := b.get("web"); p.Status.Phase != v1.PodRunning {
			t.Fatalf("phase %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
	})
}

func TestConfigMapVolumeAndEnvironment(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("web", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}}
			c := &p.Spec.Containers[0]
			c.VolumeMounts = []v1.VolumeMount{{Name: "conf", MountPath: "/conf"}}
			c.Env = []v1.EnvVar{
				{Name: "COLOUR", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}, Key: "colour"}}},
				{Name: "TEXT", Value: "the $(COLOUR) $$(COLOUR) $(NONE)"},
				{Name: "NAME", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			}
		}))
		if p := b.get("web"); p.Status.Phase != v1.PodPending || conditionOf(p, v1.PodReadyToStartContainers) != v1.ConditionFalse {
			t.Fatalf("without its config map: %+v", p.Status)
		}
		settings := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "default", ResourceVersion: "1"}, Data: map[string]string{"colour": "blue"}}
		if _, err := b.api.CoreV1().ConfigMaps("default").Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.after(time.Second)
		if p := b.get("web"); p.Status.Phase != v1.PodRunning {
			t.Fatalf("with its config map: %+v", p.Status)
		}
		env := map[string]string{}
		for _, e := range b.runtime.Config(b.containers()[0]).GetEnvs() {
			env[e.GetKey()] = string(e.GetValue())
		}
		if env["COLOUR"] != "blue" || env["TEXT"] != "the blue $(COLOUR) $(NONE)" || env["NAME"] != "web" {
			t.Fatalf("environment %v", env)
		}
		path := "/var/lib/kubelet/pods/uid-web/volumes/kubernetes.io~configmap/conf/colour"
		if raw, err := b.files.ReadFile(path, 1<<10); err != nil || string(raw) != "blue" {
			t.Fatalf("%s: %q %v", path, raw, err)
		}
		changed := settings.DeepCopy()
		changed.Data["colour"], changed.ResourceVersion = "red", "2"
		if _, err := b.api.CoreV1().ConfigMaps("default").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.after(time.Millisecond)
		if raw, _ := b.files.ReadFile(path, 1<<10); string(raw) != "red" {
			t.Fatalf("the change did not arrive: %q", raw)
		}
	})
}

func TestActiveDeadline(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		seconds := int64(10)
		b.create(pod("job", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }))
		b.after(8 * time.Second)
		if p := b.get("job"); p.Status.Phase != v1.PodRunning {
			t.Fatalf("phase %s before the deadline", p.Status.Phase)
		}
		b.after(3 * time.Second)
		if p := b.get("job"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
			t.Fatalf("after the deadline: %+v", p.Status)
		}
	})
}

// A pod that was started in the future, because the clock was set back since, has a deadline too.
func TestActiveDeadlineAfterTheClockIsSetBack(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("job", func(p *v1.Pod) {
			p.Spec.ActiveDeadlineSeconds = new(int64(10))
			p.Status.StartTime = &metav1.Time{Time: time.Now().Add(time.Hour)}
		}))
		b.after(8 * time.Second)
		if p := b.get("job"); p.Status.Phase != v1.PodRunning {
			t.Fatalf("phase %s before the deadline", p.Status.Phase)
		}
		b.after(5 * time.Second)
		if p := b.get("job"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
			t.Fatalf("after the deadline: %+v", p.Status)
		}
	})
}

func TestRejectsWhatDoesNotFit(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.create(pod("big", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity("5")}
		}))
		b.after(time.Second)
		if p := b.get("big"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "OutOfcpu" || p.Status.Message != "Pod was rejected: Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000" || len(p.Status.ContainerStatuses) != 0 {
			t.Fatalf("status %+v", p.Status)
		}
		if n := b.metrics()["kubelet_admission_rejections_total,OutOfcpu"]; n != 1 {
			t.Errorf("%v rejections are counted", n)
		}
	})
}

func TestStaticPodHasMirror(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd, namespace: default}\nspec: {containers: [{name: main, image: 'example.com/app:1'}]}\n"
		if err := b.files.MkdirAll("/etc/kubernetes/manifests", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := b.files.WriteFile("/etc/kubernetes/manifests/etcd.yaml", []byte(manifest), 0o644); err != nil {
			t.Fatal(err)
		}
		b.after(25 * time.Second)
		p := b.get("etcd-alpha")
		if p == nil || p.Annotations["kubernetes.io/config.mirror"] == "" || p.Status.Phase != v1.PodRunning {
			t.Fatalf("mirror: %+v", p)
		}
		if err := b.files.Remove("/etc/kubernetes/manifests/etcd.yaml"); err != nil {
			t.Fatal(err)
		}
		b.after(25 * time.Second)
		if b.get("etcd-alpha") != nil || len(b.containers()) > 0 {
			t.Fatalf("the static pod outlived its manifest: %v", b.containers())
		}
	})
}

// A manifest that comes back while its pod still ends starts the pod again:
// people restart static pods that way.
func TestStaticPodComesBackWhileItEnds(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour { return inmemory.Behaviour{IgnoreStop: true} }
		const path = "/etc/kubernetes/manifests/web.yaml"
		const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {terminationGracePeriodSeconds: 60, containers: [{name: main, image: 'example.com/app:1'}]}\n"
		write := func() {
			if err := b.files.WriteFile(path, []byte(manifest), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.files.MkdirAll("/etc/kubernetes/manifests", 0o755); err != nil {
			t.Fatal(err)
		}
		write()
		b.after(25 * time.Second)
		before := b.containers()
		if len(before) != 1 {
			t.Fatalf("containers %v, want one", before)
		}
		if err := b.files.Remove(path); err != nil {
			t.Fatal(err)
		}
		b.after(25 * time.Second) // the folder is looked at every 20 s
		if got := b.containers(); !slices.Equal(got, before) {
			t.Fatalf("containers %v while the pod ends, want %v", got, before)
		}
		write()
		b.after(2 * time.Minute)
		if got := b.containers(); len(got) != 1 || slices.Equal(got, before) {
			t.Errorf("containers %v, want a new one in the place of %v", got, before)
		}
		if p := b.get("web-alpha"); p == nil || p.Status.Phase != v1.PodRunning {
			t.Errorf("mirror %+v, want a running pod", p)
		}
	})
}

func TestNodeIsRegistered(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.after(time.Second)
		n, err := b.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n.Labels[v1.LabelHostname] != nodeName || n.Status.NodeInfo.ContainerRuntimeVersion != "simulated://1.0.0" {
			t.Fatalf("node %+v", n)
		}
		ready := false
		for _, c := range n.Status.Conditions {
			ready = ready || c.Type == v1.NodeReady && c.Status == v1.ConditionTrue && c.Reason == "KubeletReady"
		}
		if !ready {
			t.Fatalf("conditions %+v", n.Status.Conditions)
		}
		lease, err := b.api.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b.after(11 * time.Second)
		renewed, err := b.api.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil || !renewed.Spec.RenewTime.After(lease.Spec.RenewTime.Time) {
			t.Fatalf("lease %v not renewed: %v", renewed.Spec.RenewTime, err)
		}
	})
}

// A kubelet that starts again sets the labels of its machine on its Node. Those of
// --node-labels it gives to a new Node only: somebody may have changed them since.
func TestLabelsOfARegisteredNode(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.configure = func(c *Config) {
			c.NodeLabels = map[string]string{"pool": "red", v1.LabelTopologyZone: "b", v1.LabelTopologyRegion: ""}
		}
		b.after(time.Second)
		nodes := b.api.CoreV1().Nodes()
		n, err := nodes.Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Labels = map[string]string{"pool": "blue", v1.LabelTopologyZone: "a", v1.LabelTopologyRegion: "r"}
		if _, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.stop()
		b.start()
		if n, err = nodes.Get(t.Context(), nodeName, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		_, hasRegion := n.Labels[v1.LabelTopologyRegion]
		if n.Labels["pool"] != "blue" || n.Labels[v1.LabelTopologyZone] != "b" || hasRegion || n.Labels[v1.LabelHostname] != nodeName {
			t.Errorf("labels %v", n.Labels)
		}
	})
}

// A container that has started is not asked to once more by the kubelet that
// adopts it, ready or not.
func TestAdoptedContainersHaveStarted(t *testing.T) {
	for _, static := range []bool{false, true} {
		run(t, func(t *testing.T, b *bench) {
			var busy atomic.Bool
			b.runtime.Behave = func(*runtimeapi.ContainerConfig) inmemory.Behaviour {
				return inmemory.Behaviour{Exec: func(command []string) (string, int32) {
					if command[0] == "ready" || command[0] == "startup" && busy.Load() {
						return "busy", 1
					}
					return "", 0
				}}
			}
			probe := func(command string) *v1.Probe {
				return &v1.Probe{PeriodSeconds: 5, FailureThreshold: 3, SuccessThreshold: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{command}}}}
			}
			name := "web"
			if static {
				name = "web-" + nodeName
				const text = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: "example.com/app:1",
					startupProbe: {periodSeconds: 5, exec: {command: [startup]}}, readinessProbe: {periodSeconds: 5, exec: {command: [ready]}}}]}}`
				if err := b.files.MkdirAll("/etc/kubernetes/manifests", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := b.files.WriteFile("/etc/kubernetes/manifests/web.yaml", []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			} else {
				b.create(pod(name, func(p *v1.Pod) {
					p.Spec.Containers[0].StartupProbe, p.Spec.Containers[0].ReadinessProbe = probe("startup"), probe("ready")
				}))
			}
			b.after(time.Minute)
			if st := b.get(name).Status.ContainerStatuses[0]; !*st.Started || st.Ready {
				t.Fatalf("before: %+v", st)
			}
			busy.Store(true)
			b.stop()
			b.start()
			b.after(2 * time.Minute)
			if st := b.get(name).Status.ContainerStatuses[0]; st.RestartCount > 0 || !*st.Started || st.Ready {
				t.Errorf("static %v, after: %+v", static, st)
			}
		})
	}
}
