package image

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/supervise"
)

// collectPeriod is how often unused images are looked for.
const collectPeriod = 5 * time.Minute

// ensureSecretPulledImages is the gate of records of pulled images, on by default.
const ensureSecretPulledImages = "KubeletEnsureSecretPulledImages"

// Config is what a Manager is made from.
type Config struct {
	Configuration *kubeletconfig.KubeletConfiguration
	RootDirectory string // of the kubelet
	NodeName      string
	Runtime       internalapi.RuntimeService
	Images        internalapi.ImageManagerService
	Files         files.FS
	Machine       node.Machine
	Active        func() []*v1.Pod // pods whose images are in use
	Recorder      record.EventRecorder
}

// Manager pulls images and removes unused ones.
type Manager struct {
	*Puller
	config Config
}

// New returns a Manager.
func New(config Config) *Manager {
	c := config.Configuration
	parallel := 0
	switch {
	case c.MaxParallelImagePulls != nil:
		parallel = int(*c.MaxParallelImagePulls)
	case *c.SerializeImagePulls:
		parallel = 1
	}
	m := &Manager{Puller: NewPuller(config.Images, parallel), config: config}
	if qps := *c.RegistryPullQPS; qps > 0 {
		m.Limit = flowcontrol.NewTokenBucketRateLimiter(float32(qps), int(c.RegistryBurst))
	}
	if on, given := c.FeatureGates[ensureSecretPulledImages]; on || !given {
		m.Records = &Records{
			FS: config.Files, Dir: filepath.Join(config.RootDirectory, "image_manager"),
			Policy: c.ImagePullCredentialsVerificationPolicy, Allowlist: c.PreloadedImagesVerificationAllowlist,
		}
	}
	return m
}

// Recover records what was being pulled when the last kubelet ended. It comes
// before the first pull.
func (m *Manager) Recover(ctx context.Context) {
	if m.Records == nil {
		return
	}
	images, err := m.config.Images.ListImages(ctx, nil)
	if err == nil {
		err = m.Records.Recover(images)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "What was pulled before cannot be recorded, pods will have to pull it again")
	}
}

// Run removes unused images when the disk fills up, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	supervise.Every(ctx, collectPeriod, func() {
		supervise.Contain(ctx, "images", func() { m.collect(ctx) })
		supervise.Contain(ctx, "images", func() { m.prune(ctx) })
	})
}

// collect acts when more of the disk is used than the high threshold and frees
// down to the low one.
func (m *Manager) collect(ctx context.Context) {
	c := m.config.Configuration
	free, err := m.config.Machine.Free()
	if err != nil || free.DiskTotal == 0 {
		return
	}
	used := 100 - int(free.DiskBytes*100/free.DiskTotal)
	if used < int(*c.ImageGCHighThresholdPercent) {
		return
	}
	want := free.DiskTotal*int64(100-*c.ImageGCLowThresholdPercent)/100 - free.DiskBytes
	if freed := m.Free(ctx, want); freed < want {
		m.config.Recorder.Eventf(node.Reference(m.config.NodeName), v1.EventTypeWarning, "FreeDiskSpaceFailed",
			"Failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes eligible to free.", want, freed)
	}
}

// Free removes unused images of at least want bytes if there are as many, and
// returns how many bytes it has freed.
func (m *Manager) Free(ctx context.Context, want int64) (freed int64) {
	images, err := m.config.Images.ListImages(ctx, nil)
	if err != nil {
		return 0
	}
	containers, err := m.config.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return 0
	}
	inUse := map[string]bool{}
	for _, c := range containers {
		inUse[c.GetImageId()], inUse[c.GetImageRef()], inUse[c.GetImage().GetImage()] = true, true, true
	}
	if err := m.mountedAsVolumes(ctx, inUse); err != nil {
		klog.FromContext(ctx).Error(err, "Which images are used as volumes cannot be found out, no image is removed")
		return 0
	}
	for _, i := range Unused(images, inUse, m.LastUsed, time.Now(), m.config.Configuration.ImageMinimumGCAge.Duration, want) {
		spec := i.GetSpec()
		if spec == nil {
			spec = &runtimeapi.ImageSpec{Image: i.GetId()}
		}
		if err := m.config.Images.RemoveImage(ctx, spec); err != nil {
			klog.FromContext(ctx).Error(err, "Removing an unused image failed", "image", i.GetId())
			continue
		}
		klog.FromContext(ctx).Info("Removed unused image", "image", i.GetId(), "bytes", i.GetSize())
		freed += int64(i.GetSize())
	}
	return freed
}

// mountedAsVolumes adds the images that active pods have as volumes, by their ids.
func (m *Manager) mountedAsVolumes(ctx context.Context, inUse map[string]bool) error {
	for _, pod := range m.config.Active() {
		for i := range pod.Spec.Volumes {
			source := pod.Spec.Volumes[i].Image
			if source == nil {
				continue
			}
			name, err := Normalize(source.Reference)
			if err != nil {
				continue
			}
			status, err := m.config.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
			if err != nil {
				return fmt.Errorf("inspect image %q: %w", name, err)
			}
			inUse[status.GetImage().GetId()] = true
		}
	}
	return nil
}

// prune forgets who pulled images that are gone.
func (m *Manager) prune(ctx context.Context) {
	if m.Records == nil {
		return
	}
	began := time.Now()
	images, err := m.config.Images.ListImages(ctx, nil)
	if err == nil {
		err = m.Records.Prune(images, began)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Records of images that are gone cannot be removed, will try again")
	}
}
