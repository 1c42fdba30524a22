package kubelet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
