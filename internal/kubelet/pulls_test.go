package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// slowImages takes ten minutes to pull an image.
type slowImages struct {
	internalapi.ImageManagerService
	slow string
}

func (i slowImages) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	if image.GetImage() == i.slow {
		select {
		case <-time.After(10 * time.Minute):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return i.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

// A pod whose images are being pulled shows its sandbox already.
func TestSandboxIsShownDuringPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.configure = func(c *Config) { c.Images = slowImages{c.Images, "example.com/slow:1"} }
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web", func(p *v1.Pod) { p.Spec.Containers[0].Image = "example.com/slow:1" }))
		b.after(time.Minute)
		if p := b.get("web"); p.Status.Phase != v1.PodPending || conditionOf(p, v1.PodReadyToStartContainers) != v1.ConditionTrue || p.Status.PodIP == "" {
			t.Errorf("during the pull: %+v", p.Status)
		}
		b.after(11 * time.Minute)
		if p := b.get("web"); p.Status.Phase != v1.PodRunning {
			t.Errorf("after the pull: %+v", p.Status)
		}
	})
}

// A missing pull secret is told of only if the pull fails.
func TestMissingPullSecret(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		events := b.record()
		b.runtime.Images().FailPulls("example.com/secret:1", errors.New("unauthorized"))
		for name, image := range map[string]string{"public": "example.com/public:1", "private": "example.com/secret:1"} {
			b.create(pod(name, func(p *v1.Pod) {
				p.Spec.Containers[0].Image = image
				p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: name}}
			}))
			b.after(time.Minute)
		}
		messages := events("FailedToRetrieveImagePullSecret")
		for _, message := range messages {
			if want := "Unable to retrieve some image pull secrets (private); attempting to pull the image may not succeed."; message != want {
				t.Errorf("event %q, want %q", message, want)
			}
		}
		if len(messages) == 0 {
			t.Error("nothing tells of the secret")
		}
	})
}

// A container starts when its image is there, whatever happens to the images of the
// containers after it.
func TestContainersStartAsTheirImagesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.configure = func(c *Config) {
			parallel := false
			c.Images, c.Configuration.SerializeImagePulls = slowImages{c.Images, "example.com/slow:1"}, &parallel
		}
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web", func(p *v1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "slow", Image: "example.com/slow:1"})
		}))
		b.after(time.Minute)
		if b.live("main") == "" || b.live("slow") != "" {
			t.Errorf("after a minute: main %q, slow %q", b.live("main"), b.live("slow"))
		}
		b.after(10 * time.Minute)
		if b.live("main") == "" || b.live("slow") == "" {
			t.Errorf("in the end: main %q, slow %q", b.live("main"), b.live("slow"))
		}
		b.create(pod("gone", func(p *v1.Pod) {
			p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = "other", "example.com/slow:1"
			p.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
		}))
		b.delete("gone", 1)
		b.after(5 * time.Second)
		if p := b.get("gone"); p != nil {
			t.Errorf("a pod that was deleted during a pull: %+v", p.Status)
		}
	})
}

// Pulls that are in progress end before a pod is evicted because the disk is full: a
// registry may send without end. They do not keep a pod from being evicted again and again.
func TestPullsEndBeforePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plenty, full := node.Free{DiskBytes: 50, DiskTotal: 100}, node.Free{DiskBytes: 1, DiskTotal: 100}
		machine := &changing{left: plenty}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.EvictionHard = map[string]string{"nodefs.available": "10%"}
			c.Images = slowImages{c.Images, "example.com/endless:1"}
		}
		b.start()
		defer func() { b.stop() }()
		b.createWriting("modest", 10)
		b.create(pod("puller", func(p *v1.Pod) { p.Spec.Containers[0].Image = "example.com/endless:1" }))
		b.after(time.Minute)
		waits := func() string {
			statuses := b.get("puller").Status.ContainerStatuses
			if len(statuses) != 1 || statuses[0].State.Waiting == nil {
				t.Fatalf("the container that waits for its image: %+v", statuses)
			}
			return statuses[0].State.Waiting.Message
		}
		const why = "the node has ended the pull: its disk is short"
		if got := waits(); strings.Contains(got, why) {
			t.Fatalf("with room on the disk: %s", got)
		}
		machine.set(full)
		b.after(10 * time.Second)
		if got := waits(); !strings.Contains(got, why) {
			t.Errorf("the pull does not end: %q", got)
		}
		if evicted := b.evictedOf("modest", "puller"); evicted != nil {
			t.Errorf("evicted are %q, although a pull has ended", evicted)
		}
		b.after(10 * time.Second)
		if evicted := b.evictedOf("modest", "puller"); !slices.Equal(evicted, []string{"modest"}) {
			t.Errorf("evicted are %q", evicted)
		}
		machine.set(plenty)
		b.after(30 * time.Minute)
		if p := b.get("puller"); p.Status.Phase != v1.PodRunning {
			t.Errorf("with room again: %+v", p.Status)
		}
	})
}
