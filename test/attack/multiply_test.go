package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	supervision "github.com/coracle-io/coracle/internal/processes"
)

// TestPodMultipliesWhatTheNodeKeeps creates small pods that stand for gigabytes:
// variables that name each other ten times, very many pull secrets, and one
// secret shown very often. Each pod waits with a reason, the node's process goes
// on, and another pod starts.
func TestPodMultipliesWhatTheNodeKeeps(t *testing.T) {
	c := node(t)
	p := podsOf(t, c)
	before := c.pid(t, supervision.Node)
	large := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string][]byte{"key": make([]byte, 900<<10)}}
	if _, err := p.client.CoreV1().Secrets(p.namespace).Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.create("variables", "sleep 1000", func(pod *v1.Pod) {
		main := &pod.Spec.Containers[0]
		main.Env = []v1.EnvVar{{Name: "V0", Value: "0123456789"}}
		for i := range 10 {
			main.Env = append(main.Env, v1.EnvVar{Name: fmt.Sprint("V", i+1), Value: strings.Repeat(fmt.Sprintf("$(V%d)", i), 10)})
		}
	})
	p.create("secrets", "sleep 1000", func(pod *v1.Pod) {
		for i := range 20_000 {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: fmt.Sprint("s", i)})
		}
	})
	p.create("items", "sleep 1000", func(pod *v1.Pod) {
		source := &v1.SecretVolumeSource{SecretName: "large"}
		for i := range 3000 {
			source.Items = append(source.Items, v1.KeyToPath{Key: "key", Path: fmt.Sprint("f", i)})
		}
		pod.Spec.Volumes = []v1.Volume{{Name: "shown", VolumeSource: v1.VolumeSource{Secret: source}}}
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "shown", MountPath: "/shown"}}
	})
	_, main := p.until("variables", "waits", waitsFor("CreateContainerConfigError"))
	if !strings.HasPrefix(main.State.Waiting.Message, "environment variable V5 ") {
		t.Errorf("the pod waits because: %s", main.State.Waiting.Message)
	}
	for name, reason := range map[string]string{"secrets": "refers to 20000 config maps and secrets", "items": "show too much"} {
		p.untilEvent(name, "FailedMount", reason)
	}
	p.create("other", "sleep 1000")
	p.until("other", "runs", func(_ *v1.Pod, main v1.ContainerStatus) bool { return main.State.Running != nil })
	if after := c.pid(t, supervision.Node); after != before {
		t.Errorf("the node's process was %d and is %d", before, after)
	}
}

// untilEvent waits for an event of a pod whose message contains text.
func (p *tenantsPods) untilEvent(pod, reason, text string) {
	p.t.Helper()
	eventually(p.t, "event "+reason+" of pod "+pod, func() error {
		list, err := p.client.CoreV1().Events(p.namespace).List(p.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e v1.Event) bool { return e.Reason == reason && strings.Contains(e.Message, text) }) {
			return fmt.Errorf("%d events", len(list.Items))
		}
		return nil
	})
}
