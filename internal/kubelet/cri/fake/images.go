package fake

import (
	"context"
	"fmt"
	"slices"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images is the image service of a Runtime.
type Images struct{ runtime *Runtime }

// Images returns the image service over the same memory.
func (r *Runtime) Images() *Images { return &Images{runtime: r} }

var _ internalapi.ImageManagerService = (*Images)(nil)
var _ internalapi.RuntimeService = (*Runtime)(nil)

// AddImage makes an image present without a pull.
func (r *Runtime) AddImage(name string, size uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addImage(name, size)
}

func (r *Runtime) addImage(name string, size uint64) {
	r.images[name] = &runtimeapi.Image{Id: "sha256:" + name, RepoTags: []string{name}, RepoDigests: []string{name + "@sha256:0"}, Size: size}
}

// FailPulls makes every pull of the image end with err; nil lets it succeed again.
func (r *Runtime) FailPulls(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pullError[name] = err
}

// NeedPassword makes pulls of the image fail without that password.
func (r *Runtime) NeedPassword(name, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passwords[name] = password
}

// Pulls returns how often the image was asked for.
func (r *Runtime) Pulls(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[name]
}

// Auths returns what the image's registry was told at each pull.
func (r *Runtime) Auths(name string) []*runtimeapi.AuthConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.auths[name])
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

// PullImage implements the CRI.
func (i *Images) PullImage(_ context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	i.runtime.mu.Lock()
	defer i.runtime.mu.Unlock()
	name := image.GetImage()
	i.runtime.pulls[name]++
	i.runtime.auths[name] = append(i.runtime.auths[name], auth)
	if err := i.runtime.pullError[name]; err != nil {
		return "", fmt.Errorf("failed to pull and unpack image %q: %w", name, err)
	}
	if want := i.runtime.passwords[name]; auth.GetPassword() != want && want != "" {
		return "", fmt.Errorf("failed to pull and unpack image %q: pull access denied", name)
	}
	i.runtime.addImage(name, 1<<20)
	return "sha256:" + name, nil
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

// ImageFsInfo implements the CRI.
func (i *Images) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

// Close implements the CRI.
func (i *Images) Close(context.Context) error { return nil }
