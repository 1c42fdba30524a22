package pod

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/image"
)

// pullImages makes sure of a container's image and of those that it mounts.
func (k *kuberuntime) pullImages(ctx context.Context, pod *v1.Pod, c *v1.Container, config *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	event := func(eventType, reason, message string) {
		k.Recorder.Event(ContainerReference(pod, c.Name), eventType, reason, message)
	}
	credentials := func(name string) []image.Credential {
		var secrets []*v1.Secret
		var missing []string
		for _, ref := range pod.Spec.ImagePullSecrets {
			if k.API == nil {
				continue
			}
			secret, err := k.API.Objects.Secret(ctx, pod.Namespace, ref.Name)
			if err != nil {
				missing = append(missing, ref.Name)
				continue
			}
			secrets = append(secrets, secret)
		}
		if len(missing) > 0 {
			k.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
		}
		return image.Credentials(name, secrets)
	}
	found, err := k.Images.Ensure(ctx, c, string(pod.UID), credentials, config, event)
	if err != nil {
		var waits *image.Error
		if errors.As(err, &waits) {
			event(v1.EventTypeWarning, "Failed", "Error: "+waits.Reason)
		}
		return nil, err
	}
	for _, as := range volumeImages(pod, c) {
		if _, err := k.Images.Ensure(ctx, as, string(pod.UID), credentials, config, event); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// volumeImages are the images that the container mounts as volumes, each in the
// form of a container that runs it.
func volumeImages(pod *v1.Pod, c *v1.Container) (images []*v1.Container) {
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.Image != nil && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == vol.Name }) {
			images = append(images, &v1.Container{Name: c.Name, Image: vol.Image.Reference, ImagePullPolicy: vol.Image.PullPolicy})
		}
	}
	return images
}
