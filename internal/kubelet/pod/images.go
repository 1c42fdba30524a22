package pod

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/plan"
	"github.com/coracle-io/coracle/internal/supervise"
)

// pull is the pull of a container's images.
type pull struct {
	done  chan struct{}     // closed when the following are set
	found *runtimeapi.Image // the container's own image
	err   error
}

// startPulls pulls the images of all containers at the same time, each in a task
// of group.
func (k *kuberuntime) startPulls(ctx context.Context, group *supervise.Tasks, pod *v1.Pod, starts []plan.Start, config *runtimeapi.PodSandboxConfig) []*pull {
	var pulls []*pull
	for _, s := range starts {
		p := &pull{done: make(chan struct{})}
		pulls = append(pulls, p)
		group.Go(func() error {
			defer close(p.done)
			p.err = supervise.Call(func() (err error) {
				p.found, err = k.pullImages(ctx, pod, s.Container, config)
				return err
			})
			return nil
		})
	}
	return pulls
}

// wait waits for the end of the pull and returns the container's image.
func (p *pull) wait() (*runtimeapi.Image, error) {
	<-p.done
	return p.found, p.err
}

// pullImages ensures that a container's image, and the images that it mounts,
// are on the node. It returns the container's image.
func (k *kuberuntime) pullImages(ctx context.Context, pod *v1.Pod, c *v1.Container, config *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	event := func(eventType, reason, message string) {
		k.config.Recorder.Event(ContainerReference(pod, c.Name), eventType, reason, message)
	}
	credentials := func(name string) []image.Credential {
		var secrets []*v1.Secret
		var missing []string
		for _, ref := range pod.Spec.ImagePullSecrets {
			if k.config.API == nil {
				continue
			}
			secret, err := k.config.API.Objects.Secret(ctx, pod.Namespace, ref.Name)
			if err != nil {
				missing = append(missing, ref.Name)
				continue
			}
			secrets = append(secrets, secret)
		}
		if len(missing) > 0 {
			k.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
		}
		return image.Credentials(name, secrets)
	}
	found, err := k.config.Images.Ensure(ctx, c, string(pod.UID), credentials, config, event)
	if err != nil {
		var waits *image.Error
		if errors.As(err, &waits) {
			event(v1.EventTypeWarning, "Failed", "Error: "+waits.Reason)
		}
		return nil, err
	}
	for _, as := range volumeImages(pod, c) {
		if _, err := k.config.Images.Ensure(ctx, as, string(pod.UID), credentials, config, event); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// volumeImages returns the images that the container mounts as volumes, each as
// a container that would run it.
func volumeImages(pod *v1.Pod, c *v1.Container) (images []*v1.Container) {
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.Image != nil && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == vol.Name }) {
			images = append(images, &v1.Container{Name: c.Name, Image: vol.Image.Reference, ImagePullPolicy: vol.Image.PullPolicy})
		}
	}
	return images
}
