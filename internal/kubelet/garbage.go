package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	imagePeriod     = 5 * time.Minute
	containerPeriod = time.Minute
)

// collectGarbage removes unused images when the disk fills up, and dead
// containers and sandboxes that nobody will ask about.
func (k *Kubelet) collectGarbage(ctx context.Context) {
	images := time.NewTicker(imagePeriod)
	defer images.Stop()
	containers := time.NewTicker(containerPeriod)
	defer containers.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-images.C:
			supervise.Contain(ctx, "images", func() { k.collectImages(ctx) })
			supervise.Contain(ctx, "images", func() { k.pruneRecords(ctx) })
		case <-containers.C:
			supervise.Contain(ctx, "sandboxes", func() { k.collectSandboxes(ctx) })
		}
	}
}

// ensureSecretPulledImages is the gate of records of pulled images, on by default.
const ensureSecretPulledImages = "KubeletEnsureSecretPulledImages"

// imageRecords are the records of who pulled which image; nil if they are
// switched off.
func (k *Kubelet) imageRecords(ctx context.Context) *image.Records {
	c := &k.config.Configuration
	if on, given := c.FeatureGates[ensureSecretPulledImages]; given && !on {
		return nil
	}
	records := &image.Records{
		FS: k.config.Files, Dir: filepath.Join(k.config.RootDirectory, "image_manager"),
		Policy: c.ImagePullCredentialsVerificationPolicy, Allowlist: c.PreloadedImagesVerificationAllowlist,
	}
	images, err := k.images.ListImages(ctx, nil)
	if err == nil {
		err = records.Recover(images)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "What was pulled before cannot be recorded, pods will have to pull it again")
	}
	return records
}

// pruneRecords forgets who pulled images that are gone.
func (k *Kubelet) pruneRecords(ctx context.Context) {
	if k.puller.Records == nil {
		return
	}
	began := time.Now()
	images, err := k.images.ListImages(ctx, nil)
	if err == nil {
		err = k.puller.Records.Prune(images, began)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Records of images that are gone cannot be removed, will try again")
	}
}

// collectImages acts when more of the disk is used than the high threshold
// and frees down to the low one.
func (k *Kubelet) collectImages(ctx context.Context) {
	c := &k.config.Configuration
	free, err := k.config.Machine.Free()
	if err != nil || free.DiskTotal == 0 {
		return
	}
	used := 100 - int(free.DiskBytes*100/free.DiskTotal)
	if used < int(*c.ImageGCHighThresholdPercent) {
		return
	}
	want := free.DiskTotal*int64(100-*c.ImageGCLowThresholdPercent)/100 - free.DiskBytes
	if freed := k.removeImages(ctx, want); freed < want {
		k.recorder.Eventf(node.Reference(k.config.NodeName), v1.EventTypeWarning, "FreeDiskSpaceFailed",
			"Failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes eligible to free.", want, freed)
	}
}

// removeImages frees at least want bytes if it can, and returns how many it did.
func (k *Kubelet) removeImages(ctx context.Context, want int64) (freed int64) {
	images, err := k.images.ListImages(ctx, nil)
	if err != nil {
		return 0
	}
	containers, err := k.runtime.ListContainers(ctx, nil)
	if err != nil {
		return 0
	}
	inUse := map[string]bool{}
	for _, c := range containers {
		inUse[c.GetImageId()], inUse[c.GetImageRef()], inUse[c.GetImage().GetImage()] = true, true, true
	}
	if err := k.mountedAsVolumes(ctx, inUse); err != nil {
		klog.FromContext(ctx).Error(err, "Which images are used as volumes cannot be found out, no image is removed")
		return 0
	}
	for _, i := range image.Unused(images, inUse, k.puller.LastUsed, time.Now(), k.config.Configuration.ImageMinimumGCAge.Duration, want) {
		spec := i.GetSpec()
		if spec == nil {
			spec = &runtimeapi.ImageSpec{Image: i.GetId()}
		}
		if err := k.images.RemoveImage(ctx, spec); err != nil {
			klog.FromContext(ctx).Error(err, "Removing an unused image failed", "image", i.GetId())
			continue
		}
		klog.FromContext(ctx).Info("Removed unused image", "image", i.GetId(), "bytes", i.GetSize())
		freed += int64(i.GetSize())
	}
	return freed
}

// mountedAsVolumes adds the images that live pods have as volumes, by their ids.
func (k *Kubelet) mountedAsVolumes(ctx context.Context, inUse map[string]bool) error {
	for _, pod := range k.active() {
		for i := range pod.Spec.Volumes {
			source := pod.Spec.Volumes[i].Image
			if source == nil {
				continue
			}
			name, err := image.Normalize(source.Reference)
			if err != nil {
				continue
			}
			status, err := k.images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
			if err != nil {
				return fmt.Errorf("inspect image %q: %w", name, err)
			}
			inUse[status.GetImage().GetId()] = true
		}
	}
	return nil
}

// collectSandboxes removes a live pod's dead sandboxes but the newest.
func (k *Kubelet) collectSandboxes(ctx context.Context) {
	for _, w := range k.list() {
		observed := w.seen()
		if observed == nil {
			continue
		}
		inUse := map[string]bool{}
		for _, c := range observed.Containers {
			inUse[c.SandboxID] = true
		}
		for i, s := range observed.Sandboxes {
			if i > 0 && !s.Ready && !inUse[s.ID] {
				if err := k.runtime.RemovePodSandbox(ctx, s.ID); err != nil && !cri.IsNotFound(err) {
					klog.FromContext(ctx).Error(err, "Removing a dead sandbox failed", "sandbox", s.ID)
				}
			}
		}
	}
}
