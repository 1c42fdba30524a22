package attack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	supervision "github.com/coracle-io/coracle/internal/processes"
)

// tenantsPods are the pods of a tenant with the role edit in its namespace.
type tenantsPods struct {
	t         *testing.T
	cluster   *cluster
	client    kubernetes.Interface
	namespace string
}

func podsOf(t *testing.T, c *cluster) *tenantsPods {
	t.Helper()
	config, namespace := c.tenant(t, "edit")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &tenantsPods{t: t, cluster: c, client: client, namespace: namespace}
	eventually(t, "the tenant's service account", func() error {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	t.Cleanup(func() { // the namespace is deleted too, but does not wait for the containers
		zero := int64(0)
		ctx := context.Background()
		if err := c.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{}); err != nil {
			t.Errorf("delete the pods of %s: %v", namespace, err)
		}
	})
	return p
}

// create makes a pod of one container that runs a script.
func (p *tenantsPods) create(name, script string, change ...func(*v1.Pod)) {
	p.t.Helper()
	no, grace := false, int64(0)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
		Containers: []v1.Container{{Name: "main", Image: image, Command: []string{"sh", "-c", script}}},
	}}
	for _, f := range change {
		f(pod)
	}
	if _, err := p.client.CoreV1().Pods(p.namespace).Create(p.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// until waits for a condition of the container "main" of a pod, and returns
// both.
func (p *tenantsPods) until(name, what string, holds func(pod *v1.Pod, main v1.ContainerStatus) bool) (*v1.Pod, v1.ContainerStatus) {
	p.t.Helper()
	var pod *v1.Pod
	var main v1.ContainerStatus
	eventually(p.t, "pod "+name+": "+what, func() (err error) {
		if pod, err = p.client.CoreV1().Pods(p.namespace).Get(p.t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		main = v1.ContainerStatus{}
		if len(pod.Status.ContainerStatuses) > 0 {
			main = pod.Status.ContainerStatuses[0]
		}
		if !holds(pod, main) {
			return fmt.Errorf("phase %s %s, container %+v", pod.Status.Phase, pod.Status.Reason, main)
		}
		return nil
	})
	return pod, main
}

// restartedTwice reports whether a container has ended and was restarted since.
func restartedTwice(_ *v1.Pod, main v1.ContainerStatus) bool {
	return main.RestartCount >= 2 && main.LastTerminationState.Terminated != nil
}

func waitsFor(reasons ...string) func(*v1.Pod, v1.ContainerStatus) bool {
	return func(_ *v1.Pod, main v1.ContainerStatus) bool {
		return main.State.Waiting != nil && slices.Contains(reasons, main.State.Waiting.Reason)
	}
}

// inVolume runs a script in a volume in an init container.
func inVolume(script string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		mounts := []v1.VolumeMount{{Name: "work", MountPath: "/scratch"}}
		pod.Spec.InitContainers = []v1.Container{{Name: "before", Image: image, Command: []string{"sh", "-c", script}, VolumeMounts: mounts}}
	}
}

func asMessage(pod *v1.Pod) {
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "work", MountPath: "/dev/termination-log", SubPath: "message"}}
}

// TestEndlessTerminationMessage tries termination messages that are a sparse
// file of 1 TiB, links, a pipe and a device. The kubelet reads at most 4 KiB of
// a regular file.
func TestEndlessTerminationMessage(t *testing.T) {
	c := node(t)
	p := podsOf(t, c)
	fallback := func(pod *v1.Pod) {
		pod.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	}
	try := 0
	c.checkLatencyDuring(t, func(context.Context) {
		try++
		named := func(name string) string { return fmt.Sprintf("%s-%d", name, try) }
		p.create(named("hole"), "truncate -s 1024G /dev/termination-log")
		p.create(named("torrent"), "dd if=/dev/zero bs=1M count=64 2>/dev/null; exit 1", fallback)
		p.create(named("pipe"), "true", inVolume("mkfifo /scratch/message"), asMessage)
		p.create(named("device"), "true", inVolume("mknod /scratch/message c 1 5"), asMessage)
		p.create(named("link"), "true", inVolume("ln -s /etc/shadow /scratch/message"), asMessage)
		for _, name := range []string{"hole", "torrent", "pipe", "device"} {
			_, main := p.until(named(name), "restarted twice", restartedTwice)
			if message := main.LastTerminationState.Terminated.Message; len(message) > 4096 {
				t.Errorf("%s: a message of %d bytes", name, len(message))
			}
		}
		if _, main := p.until(named("hole"), "restarted", restartedTwice); len(main.LastTerminationState.Terminated.Message) != 4096 {
			t.Errorf("hole: a message of %d bytes", len(main.LastTerminationState.Terminated.Message))
		}
		_, main := p.until(named("link"), "refused", waitsFor("CreateContainerConfigError"))
		if message := main.State.Waiting.Message; strings.Contains(message, "root:") {
			t.Errorf("link: %s", message)
		}
	})
}

// TestPodReadsTheHostByAnEnvironmentFile tries environment files that are links
// to files of the host, devices, pipes and endless files.
func TestPodReadsTheHostByAnEnvironmentFile(t *testing.T) {
	c := node(t)
	p := podsOf(t, c)
	for name, script := range map[string]string{
		"absolute": "ln -s /etc/passwd /scratch/env",
		"relative": "ln -s ../../../../../../../../../../../../etc/passwd /scratch/env",
		"magic":    "ln -s /proc/self/environ /scratch/env",
		"zero":     "ln -s /dev/zero /scratch/env",
		"device":   "mknod /scratch/env c 1 5",
		"pipe":     "mkfifo /scratch/env",
		"hole":     "echo \"KEY='1'\" >/scratch/env; truncate -s 1024G /scratch/env",
	} {
		p.create(name, "env", inVolume(script), func(pod *v1.Pod) {
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "KEY", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "work", Path: "env", Key: "KEY"}}}}
		})
		_, main := p.until(name, "refused", waitsFor("CreateContainerConfigError"))
		if message := main.State.Waiting.Message; strings.Contains(message, "root:") || len(message) > 4096 {
			t.Errorf("%s: %.500s", name, message)
		}
		c.checkNotRestarted(t)
	}
}

// TestPodReadsTheHostByItsLog replaces the pod's own log by a link to a file of
// the host, and by a pipe.
func TestPodReadsTheHostByItsLog(t *testing.T) {
	c := node(t)
	p := podsOf(t, c)
	logs := filepath.Join(c.dataDir, "logs", "pods")
	for name, put := range map[string]string{"link": "ln -s /etc/passwd", "zero": "ln -s /dev/zero", "pipe": "mkfifo"} {
		script := fmt.Sprintf(`cd /logs/%s_%s_* && rm main/0.log && %s main/0.log && touch /tmp/done && sleep 1000`, p.namespace, name, put)
		p.create(name, script, func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{Name: "logs", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: logs}}}}
			m := &pod.Spec.Containers[0]
			m.VolumeMounts = []v1.VolumeMount{{Name: "logs", MountPath: "/logs"}}
			m.ReadinessProbe = &v1.Probe{PeriodSeconds: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-e", "/tmp/done"}}}}
		})
		p.until(name, "has replaced its log", func(_ *v1.Pod, main v1.ContainerStatus) bool { return main.Ready })
		raw, err := p.client.CoreV1().Pods(p.namespace).GetLogs(name, &v1.PodLogOptions{}).DoRaw(t.Context())
		if err == nil || strings.Contains(string(raw), "root:") {
			t.Errorf("%s: %d bytes of a file that is not the log, %v: %.100s", name, len(raw), err, raw)
		}
	}
	c.checkNotRestarted(t)
}

// TestPodPretendsToBeStatic has a user mark a pod as a static one, which would
// bypass admission.
func TestPodPretendsToBeStatic(t *testing.T) {
	c := node(t)
	p := podsOf(t, c)
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("nodes: %v, %v", nodes, err)
	}
	claims := func(pod *v1.Pod) {
		pod.Spec.NodeName = nodes.Items[0].Name
		pod.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "1"}
	}
	p.create("big", "sleep 1000", claims, func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10k")}
	})
	p.until("big", "refused by the node", func(pod *v1.Pod, _ v1.ContainerStatus) bool {
		return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "OutOfcpu"
	})
	p.create("small", "sleep 1000", claims)
	p.until("small", "started as an ordinary pod", func(pod *v1.Pod, main v1.ContainerStatus) bool {
		return pod.Status.Phase == v1.PodRunning && main.ContainerID != ""
	})
}

// TestFailingProbesKeepTheNodeBusy checks that a container whose probe always
// fails is restarted with back-off.
func TestFailingProbesKeepTheNodeBusy(t *testing.T) {
	p := podsOf(t, node(t))
	sick := &v1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"false"}}}}
	p.create("liveness", "sleep 1000", func(pod *v1.Pod) { pod.Spec.Containers[0].LivenessProbe = sick })
	p.create("startup", "sleep 1000", func(pod *v1.Pod) { pod.Spec.Containers[0].StartupProbe = sick })
	for _, name := range []string{"liveness", "startup"} {
		_, main := p.until(name, "backs off", waitsFor("CrashLoopBackOff"))
		if main.RestartCount > 4 || !strings.HasPrefix(main.State.Waiting.Message, "back-off 10s restarting failed container=main") {
			t.Errorf("%s: restarted %d times, then %s", name, main.RestartCount, main.State.Waiting.Message)
		}
	}
}

// TestProbedServerAnswersWithoutEnd probes servers whose headers and bodies have no end.
// The node's process goes on, and says why the one is not ready.
func TestProbedServerAnswersWithoutEnd(t *testing.T) {
	c := node(t)
	p := podsOf(t, c)
	before := c.pid(t, supervision.Node)
	endless := func(pod *v1.Pod) {
		pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 60, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80)}}}
	}
	const serve = `while true; do (printf "%s"; while echo "%s"; do :; done) | nc -l -p 80; done`
	line := strings.Repeat("x", 1000)
	p.create("headers", fmt.Sprintf(serve, `HTTP/1.1 200 OK\r\n`, "X: "+line), endless)
	p.create("body", fmt.Sprintf(serve, `HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n`, line), endless)
	p.untilEvent("headers", "Unhealthy", "exceeded")
	p.until("body", "is ready", func(_ *v1.Pod, main v1.ContainerStatus) bool { return main.Ready })
	if after := c.pid(t, supervision.Node); after != before {
		t.Errorf("the node's process was %d and is %d", before, after)
	}
}

// TestPodCreatesADeepDirectoryTree creates a directory tree deeper than the
// longest path. It is removed with the pod.
func TestPodCreatesADeepDirectoryTree(t *testing.T) {
	p := podsOf(t, node(t))
	deep := `cd /scratch; mkdir tree; i=0; while [ $i -lt 200 ]; do mkdir more && mv tree more/` + strings.Repeat("d", 100) + ` && mv more tree || exit 1; i=$((i+1)); done`
	p.create("deep", "sleep 1000", inVolume(deep))
	p.until("deep", "runs", func(_ *v1.Pod, main v1.ContainerStatus) bool { return main.State.Running != nil })
	if err := p.client.CoreV1().Pods(p.namespace).Delete(t.Context(), "deep", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod and its tree are gone", func() error {
		_, err := p.client.CoreV1().Pods(p.namespace).Get(t.Context(), "deep", metav1.GetOptions{})
		if err == nil {
			return errors.New("the pod is still there")
		}
		return nil
	})
}

// TestPodRunsAnImageWithoutItsPullSecret runs an image that another tenant has
// pulled with a secret, without the secret and with a wrong one.
func TestPodRunsAnImageWithoutItsPullSecret(t *testing.T) {
	c := node(t)
	host := registry(t, "owner", "right")
	private := host + "/private:1"
	owner, other := podsOf(t, c), podsOf(t, c)
	pull := func(p *tenantsPods, podName, password string, policy v1.PullPolicy, want ...string) {
		t.Helper()
		p.create(podName, "", func(pod *v1.Pod) {
			m := &pod.Spec.Containers[0]
			m.Image, m.ImagePullPolicy, m.Command = private, policy, []string{"/none"}
			if password == "" {
				return
			}
			secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: podName}, Type: v1.SecretTypeDockerConfigJson, StringData: map[string]string{
				v1.DockerConfigJsonKey: fmt.Sprintf(`{"auths": {%q: {"username": "owner", "password": %q}}}`, host, password)}}
			if _, err := p.client.CoreV1().Secrets(p.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: podName}}
		})
		p.until(podName, "has pulled or not pulled the image", waitsFor(want...))
	}
	// The image has no command to run. A container that gets as far as that
	// error had access to the image.
	started := []string{"RunContainerError", "CreateContainerError", "CrashLoopBackOff"}
	refusedPull := []string{"ErrImagePull", "ImagePullBackOff"}
	pull(owner, "owner", "right", v1.PullIfNotPresent, started...)
	pull(other, "without", "", v1.PullIfNotPresent, refusedPull...)
	pull(other, "never", "", v1.PullNever, "ErrImageNeverPull")
	pull(other, "wrong", "guessed", v1.PullIfNotPresent, refusedPull...)
	pull(owner, "again", "right", v1.PullNever, started...)
}
