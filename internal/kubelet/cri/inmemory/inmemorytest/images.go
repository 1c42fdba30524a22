package inmemorytest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory"
)

// Images is the image service of a Runtime.
type Images struct {
	*inmemory.Images

	mu        sync.Mutex // guards what follows
	pulls     map[string]int
	failures  map[string]error
	passwords map[string]string
	auths     map[string][]*runtimeapi.AuthConfig
	root      string // mount point of the images, "" if not reported
	layers    string // mount point of the writable layers, "" if not reported
}

// FailPulls makes every pull of the image fail with err. Nil lets pulls succeed
// again.
func (i *Images) FailPulls(name string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failures[name] = err
}

// NeedPassword makes pulls of the image fail without the given password.
func (i *Images) NeedPassword(name, password string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.passwords[name] = password
}

// Pulls returns how often the image was pulled, including failed pulls.
func (i *Images) Pulls(name string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.pulls[name]
}

// Auths returns the credentials of each pull of the image.
func (i *Images) Auths(name string) []*runtimeapi.AuthConfig {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.auths[name])
}

// SetRoot sets the path at which the runtime keeps its images. If it is empty, the
// runtime reports no file system.
func (i *Images) SetRoot(mountpoint string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.root = mountpoint
}

// SetLayersRoot sets the path at which the runtime keeps the writable layers of
// containers. If it is empty, the runtime does not report it.
func (i *Images) SetLayersRoot(mountpoint string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.layers = mountpoint
}

// PullImage implements the CRI.
func (i *Images) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	if err := i.admit(image.GetImage(), auth); err != nil {
		return "", fmt.Errorf("failed to pull and unpack image %q: %w", image.GetImage(), err)
	}
	return i.Images.PullImage(ctx, image, auth, sandbox)
}

// admit records a pull and returns why it fails, or nil.
func (i *Images) admit(name string, auth *runtimeapi.AuthConfig) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pulls[name]++
	i.auths[name] = append(i.auths[name], auth)
	if err := i.failures[name]; err != nil {
		return err
	}
	if want := i.passwords[name]; auth.GetPassword() != want && want != "" {
		return fmt.Errorf("pull access denied")
	}
	return nil
}

// ImageFsInfo implements the CRI.
func (i *Images) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := func(mountpoint string) []*runtimeapi.FilesystemUsage {
		if mountpoint == "" {
			return nil
		}
		return []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: mountpoint}}}
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: at(i.root), ContainerFilesystems: at(i.layers)}, nil
}
