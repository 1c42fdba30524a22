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
	done  chan struct{} // closed when the following are set
	found containerImages
	err   error
}

// containerImages are the images of a container on the node.
type containerImages struct {
	own     *runtimeapi.Image
	mounted map[string]*runtimeapi.Image // by the references of its image volumes
}

// name makes mounts name the images that were found, and not references to them: an image
// stays the same, and the runtime says of a container which ones it uses.
func (i containerImages) name(mounts []*runtimeapi.Mount) {
	for _, m := range mounts {
		reference := m.GetImage().GetImage()
		if id := i.mounted[reference].GetId(); id != "" {
			m.Image = &runtimeapi.ImageSpec{Image: id, UserSpecifiedImage: reference}
		}
	}
}

// maxPulling is for how many containers of a pod images are pulled at a time. Each
// pull reads the pod's pull secrets.
const maxPulling = 16

// startPulls pulls the images of the containers, of some at a time, each in a task
// of group.
func (k *kuberuntime) startPulls(ctx context.Context, group *supervise.Tasks, pod *v1.Pod, starts []plan.Start, config *runtimeapi.PodSandboxConfig) []*pull {
	var pulls []*pull
	turns := make(chan struct{}, maxPulling)
	for _, s := range starts {
		p := &pull{done: make(chan struct{})}
		pulls = append(pulls, p)
		group.Go(func() error {
			defer close(p.done)
			turns <- struct{}{}
			defer func() { <-turns }()
			p.err = supervise.Call(func() (err error) {
				p.found, err = k.pullImages(ctx, pod, s.Container, config)
				return err
			})
			return nil
		})
	}
	return pulls
}

// pending reports whether the pull has not ended.
func (p *pull) pending() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait waits for the end of the pull and returns the container's images.
func (p *pull) wait() (containerImages, error) {
	<-p.done
	return p.found, p.err
}

// pullImages ensures that a container's image, and the images that it mounts,
// are on the node. It returns them.
func (k *kuberuntime) pullImages(ctx context.Context, pod *v1.Pod, c *v1.Container, config *runtimeapi.PodSandboxConfig) (containerImages, error) {
	ended := func() {} // the pull under way
	event := func(eventType, reason, message string) {
		if reason == "Pulling" {
			ended = k.metrics.startups.pull(pod.UID)
		}
		k.config.Recorder.Event(ContainerReference(pod, c.Name), eventType, reason, message)
	}
	var missing []string // pull secrets
	logins := image.Logins{Secrets: func(name string) []image.Credential {
		return image.Credentials(name, func(yield func(*v1.Secret) bool) {
			missing = k.pullSecrets(ctx, pod, yield)
		})
	}}
	if k.config.API != nil {
		logins.Account = k.config.API.Account(pod)
	}
	ensure := func(c *v1.Container) (*runtimeapi.Image, error) {
		missing = nil
		defer func() {
			ended()
			ended = func() {}
		}()
		found, err := k.config.Images.Ensure(ctx, c, string(pod.UID), logins, config, event)
		if err != nil && len(missing) > 0 {
			k.config.Recorder.Eventf(Reference(pod), v1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
		}
		return found, err
	}
	found := containerImages{mounted: map[string]*runtimeapi.Image{}}
	var err error
	if found.own, err = ensure(c); err != nil {
		var waits *image.Error
		if errors.As(err, &waits) {
			event(v1.EventTypeWarning, "Failed", "Error: "+waits.Reason)
		}
		return containerImages{}, err
	}
	for _, as := range volumeImages(pod, c) {
		k.metrics.imagesRequested.Inc()
		if found.mounted[as.Image], err = ensure(as); err != nil {
			return containerImages{}, err
		}
	}
	return found, nil
}

// pullSecrets yields the pull secrets of a pod, each once, and returns the names
// of those that cannot be read.
func (k *kuberuntime) pullSecrets(ctx context.Context, pod *v1.Pod, yield func(*v1.Secret) bool) (missing []string) {
	if k.config.API == nil {
		return nil
	}
	seen := make(map[string]bool, len(pod.Spec.ImagePullSecrets))
	for _, ref := range pod.Spec.ImagePullSecrets {
		if seen[ref.Name] {
			continue
		}
		seen[ref.Name] = true
		if secret, err := k.config.API.Objects.Secret(ctx, pod.Namespace, ref.Name); err != nil {
			missing = append(missing, ref.Name)
		} else if !yield(secret) {
			return missing
		}
	}
	return missing
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
