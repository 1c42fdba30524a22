package inmemory

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images is the image service of a Runtime.
type Images struct{ runtime *Runtime }

// Images returns the image service of the runtime.
func (r *Runtime) Images() *Images { return &Images{runtime: r} }

var _ internalapi.ImageManagerService = (*Images)(nil)
var _ internalapi.RuntimeService = (*Runtime)(nil)

// AddImage adds an image without a pull, as one that was loaded from a file.
func (r *Runtime) AddImage(name string, size uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images[name] = &runtimeapi.Image{Id: "sha256:" + name, RepoTags: []string{name}, RepoDigests: []string{name + "@sha256:0"}, Size: size}
}

// ListImages implements the CRI.
func (i *Images) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	i.runtime.mu.Lock()
	defer i.runtime.mu.Unlock()
	out := make([]*runtimeapi.Image, 0, len(i.runtime.images))
	for _, image := range i.runtime.images {
		out = append(out, image)
	}
	return out, nil
}

// ImageStatus implements the CRI.
func (i *Images) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	i.runtime.mu.Lock()
	defer i.runtime.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: i.runtime.images[image.GetImage()]}, nil
}

// PullImage implements the CRI. There is every image, for everyone.
func (i *Images) PullImage(_ context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	i.runtime.AddImage(image.GetImage(), 1<<20)
	return "sha256:" + image.GetImage(), nil
}

// RemoveImage implements the CRI.
func (i *Images) RemoveImage(_ context.Context, image *runtimeapi.ImageSpec) error {
	i.runtime.mu.Lock()
	defer i.runtime.mu.Unlock()
	for name, known := range i.runtime.images {
		if name == image.GetImage() || known.GetId() == image.GetImage() {
			delete(i.runtime.images, name)
		}
	}
	return nil
}

// ImageFsInfo implements the CRI. Images take no space on a file system.
func (i *Images) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

// Close implements the CRI.
func (i *Images) Close(context.Context) error { return nil }
