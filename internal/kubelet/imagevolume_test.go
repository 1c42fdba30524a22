package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/metrics"
)

// imageVolume is a volume from an image.
func imageVolume(reference string, policy v1.PullPolicy) v1.VolumeSource {
	return v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: reference, PullPolicy: policy}}
}

// registries are pull secrets with one password for each registry.
func (b *bench) registries(passwords map[string]string) func(p *v1.Pod) {
	b.t.Helper()
	var references []v1.LocalObjectReference
	for registry, password := range passwords {
		s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: registry, Namespace: "default", ResourceVersion: "1"}, Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"username":"u","password":%q}}}`, registry, password)}}
		if _, err := b.api.CoreV1().Secrets("default").Create(b.t.Context(), s, metav1.CreateOptions{}); err != nil {
			b.t.Fatal(err)
		}
		references = append(references, v1.LocalObjectReference{Name: registry})
	}
	return func(p *v1.Pod) { p.Spec.ImagePullSecrets = references }
}

// An image volume is pulled with what the pod has for its registry, and no
// registry sees another's password.
func TestImageVolumeHasItsOwnCredentials(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		const app, model = "apps.example.com/app:1", "models.example.org/model:1"
		b.runtime.Images().NeedPassword(app, "of apps")
		b.runtime.Images().NeedPassword(model, "of models")
		secrets := b.registries(map[string]string{"apps.example.com": "of apps", "models.example.org": "of models"})
		for name, policy := range map[string]v1.PullPolicy{"first": v1.PullAlways, "second": v1.PullIfNotPresent} {
			b.create(pod(name, secrets, withVolume(imageVolume(model, policy)), func(p *v1.Pod) {
				p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = name, app
			}))
			b.after(time.Minute)
			if b.live(name) == "" {
				t.Errorf("%s: %+v", name, b.get(name).Status.ContainerStatuses)
			}
		}
		for image, want := range map[string]string{app: "of apps", model: "of models"} {
			for _, auth := range b.runtime.Images().Auths(image) {
				if auth.GetPassword() != want {
					t.Errorf("the registry of %s got the password %q", image, auth.GetPassword())
				}
			}
		}
	})
}

// A container whose pod has an image volume that only others mount does not
// wait for it.
func TestImageVolumeOfAnotherContainer(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		const model = "models.example.org/model:1"
		b.runtime.Images().FailPulls(model, fmt.Errorf("no such host"))
		b.create(pod("web", withVolume(imageVolume(model, v1.PullAlways)), func(p *v1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "other", Image: "example.com/app:1"})
		}))
		b.after(time.Minute)
		if b.live("other") == "" || b.live("main") != "" {
			t.Errorf("running are main %q and other %q", b.live("main"), b.live("other"))
		}
	})
}

// An image that a pod has as a volume alone is in use.
func TestImageVolumeIsNotGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &changing{}
		b := newBench(t)
		b.configure = func(c *Config) {
			machine.Machine, c.Machine = c.Machine, machine
			c.Configuration.EvictionHard = map[string]string{}
		}
		b.start()
		defer func() { b.stop() }()
		const model, unused = "models.example.org/model", "example.com/unused:1"
		b.runtime.AddImage(unused, 1<<20)
		b.create(pod("web", withVolume(imageVolume(model, v1.PullIfNotPresent))))
		b.after(time.Minute)
		if b.live("main") == "" {
			t.Fatalf("%+v", b.get("web").Status.ContainerStatuses)
		}
		if got, want := b.mountedImages("main"), "sha256:"+model+":latest of "+model; len(got) != 1 || got[0] != want {
			t.Errorf("the container has mounted %q, want %s", got, want)
		}
		machine.set(node.Free{DiskTotal: 100 << 20, DiskBytes: 1 << 20})
		b.after(time.Hour)
		images, err := b.runtime.Images().ListImages(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		left := map[string]bool{}
		for _, i := range images {
			left[i.GetRepoTags()[0]] = true
		}
		if !left[model+":latest"] || left[unused] {
			t.Errorf("left are %v", left)
		}
	})
}

// mountedImages returns the images that the runtime has mounted for a container, and what
// the pod calls them.
func (b *bench) mountedImages(container string) (all []string) {
	b.t.Helper()
	answer, err := b.runtime.ContainerStatus(b.t.Context(), b.live(container), false)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range answer.GetStatus().GetMounts() {
		if m.GetImage() != nil {
			all = append(all, m.GetImage().GetImage()+" of "+m.GetImage().GetUserSpecifiedImage())
		}
	}
	return all
}

// An image volume that cannot be pulled is tried again as often as a
// container's own image.
func TestImageVolumeIsPulledAgain(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		const model = "models.example.org/model:1"
		b.runtime.Images().FailPulls(model, errors.New("the registry is away"))
		b.create(pod("web", withVolume(imageVolume(model, v1.PullAlways))))
		b.after(40 * time.Second) // at 0, 10 and 30 s
		if n := b.runtime.Images().Pulls(model); n < 3 {
			t.Errorf("it was pulled %d times in 40 s", n)
		}
	})
}

// withoutImageVolumes is a runtime that cannot mount images.
type withoutImageVolumes struct{ *inmemorytest.Runtime }

func (withoutImageVolumes) CreateContainer(context.Context, string, *runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig) (string, error) {
	return "", errors.New("image volumes are not supported")
}

// Image volumes are counted when a container asks for them, and when the runtime has
// mounted them or has not.
func TestImageVolumesAreCounted(t *testing.T) {
	for name, supported := range map[string]bool{"mounted": true, "not mounted": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := metrics.NewRegistry(nil)
				b := newBench(t)
				b.configure = func(c *Config) {
					c.Metrics = registry
					if !supported {
						c.Runtime = withoutImageVolumes{b.runtime}
					}
				}
				b.start()
				defer func() { b.stop() }()
				b.create(pod("web", withVolume(imageVolume("models.example.org/model:1", v1.PullIfNotPresent))))
				b.after(time.Second)
				families, err := registry.Registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]float64{}
				for _, f := range families {
					if kind, ok := strings.CutPrefix(f.GetName(), "kubelet_image_volume_"); ok {
						got[kind] = f.GetMetric()[0].GetCounter().GetValue()
					}
				}
				requested, mounted, failed := got["requested_total"], got["mounted_succeed_total"], got["mounted_errors_total"]
				if supported && (requested != 1 || mounted != 1 || failed != 0) || !supported && (requested < 1 || mounted != 0 || failed != requested) {
					t.Errorf("counted are %v", got)
				}
			})
		})
	}
}
