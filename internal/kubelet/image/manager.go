package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/supervise"
)

// collectPeriod is the period of the image garbage collection.
const collectPeriod = 5 * time.Minute

// mostNames is how many names the unused images of a node may have. Each costs memory of
// the runtime and of the kubelet, also if its image is smaller than the names.
const mostNames = 10_000

// fileSystemTimeout bounds the wait for a runtime that does not answer: the
// eviction manager watches other resources too.
const fileSystemTimeout = 5 * time.Second

// Config configures a Manager.
type Config struct {
	Configuration *kubeletconfig.KubeletConfiguration
	Features      *feature.Set // nil is the default
	RootDirectory string       // of the kubelet
	NodeName      string
	Runtime       internalapi.RuntimeService
	Images        internalapi.ImageManagerService
	Files         files.FS
	Machine       node.Machine
	Active        func() []*v1.Pod // pods that are to run, or run
	Known         func() []*v1.Pod // pods that may have containers, also ended ones
	Recorder      record.EventRecorder
	Providers     *Providers            // nil: none
	Metrics       prometheus.Registerer // nil: the metrics are not shown
}

// Manager is the image manager: it pulls images and removes unused ones.
type Manager struct {
	*puller
	config Config

	mountpointsMu sync.Mutex // guards mountpoints
	mountpoints   mountpoints
}

// mountpoints are where the runtime keeps images and the writable layers of containers. ""
// is not known.
type mountpoints struct{ images, containers string }

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
	m := &Manager{puller: newPuller(config.Images, parallel), config: config}
	m.Providers = config.Providers
	if qps := *c.RegistryPullQPS; qps > 0 {
		m.Limit = flowcontrol.NewTokenBucketRateLimiter(float32(qps), int(c.RegistryBurst))
	}
	if config.Features.Enabled(feature.KubeletEnsureSecretPulledImages) {
		m.Records = &records{
			FS: config.Files, Dir: filepath.Join(config.RootDirectory, "image_manager"),
			Policy: c.ImagePullCredentialsVerificationPolicy, Allowlist: c.PreloadedImagesVerificationAllowlist,
			checks: newChecks(),
		}
	}
	if config.Metrics != nil {
		shown := slices.Concat(m.metrics.collectors(), m.Providers.collectors())
		if m.Records != nil {
			shown = append(shown, m.Records.collectors()...)
		}
		config.Metrics.MustRegister(shown...)
	}
	return m
}

// Recover records the pulls that were in progress when the last kubelet ended.
// It must be called before the first pull.
func (m *Manager) Recover(ctx context.Context) {
	if m.Records == nil {
		return
	}
	images, err := m.config.Images.ListImages(ctx, nil)
	if err == nil {
		err = m.Records.Recover(images)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Recording interrupted pulls failed, pods will have to pull these images again")
	}
}

// Run removes unused images when their file system fills up, or when there are very many,
// until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	detect := func() {
		if _, _, err := m.detect(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Finding the images in use failed, will try again")
		}
	}
	supervise.Contain(ctx, "images", detect)
	failed := false
	supervise.Every(ctx, collectPeriod, func() {
		supervise.Contain(ctx, "images", detect)
		var old, excess error
		supervise.Contain(ctx, "images", func() { old = m.removeOld(ctx) })
		supervise.Contain(ctx, "images", func() { excess = m.removeExcess(ctx) })
		supervise.Contain(ctx, "images", func() {
			failed = m.collected(ctx, utilerrors.NewAggregate([]error{old, excess, m.collect(ctx)}), failed)
		})
		supervise.Contain(ctx, "images", func() { m.prune(ctx) })
	})
}

// FileSystems returns what is free on the file systems that the runtime keeps images and
// the writable layers of containers on (KEP-4191). If the runtime does not report a path, or
// the path is not there for the kubelet, images are on the machine's disk, and layers are
// with the images. An error comes with nothing else.
func (m *Manager) FileSystems(ctx context.Context) (images, containers node.FileSystem, err error) {
	at, err := m.findMountpoints(ctx)
	if err != nil {
		return node.FileSystem{}, node.FileSystem{}, err
	}
	images, found, err := m.fileSystem(at.images)
	if err == nil && !found {
		var free node.Free
		free, err = m.config.Machine.Free()
		images = free.Disk()
	}
	if err != nil {
		return node.FileSystem{}, node.FileSystem{}, err
	}
	if at.containers == at.images {
		return images, images, nil
	}
	containers, found, err = m.fileSystem(at.containers)
	switch {
	case err != nil:
		return node.FileSystem{}, node.FileSystem{}, err
	case !found:
		containers = images
	}
	return images, containers, nil
}

// fileSystem returns what is free on the file system at a path, and whether it is there.
func (m *Manager) fileSystem(path string) (free node.FileSystem, found bool, err error) {
	if path == "" {
		return free, false, nil
	}
	free, err = m.config.Machine.FileSystem(path)
	if errors.Is(err, fs.ErrNotExist) {
		return free, false, nil
	}
	return free, err == nil, err
}

// findMountpoints asks the runtime for its mount points until it has answered once. The
// feature gate KubeletSeparateDiskGC tells those of layers and of images apart.
func (m *Manager) findMountpoints(ctx context.Context) (mountpoints, error) {
	m.mountpointsMu.Lock()
	at := m.mountpoints
	m.mountpointsMu.Unlock()
	if at.images != "" {
		return at, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fileSystemTimeout)
	defer cancel()
	info, err := m.config.Images.ImageFsInfo(ctx)
	if err != nil {
		return mountpoints{}, fmt.Errorf("find the runtime's image file system: %w", err)
	}
	at.images = first(info.GetImageFilesystems()).GetFsId().GetMountpoint()
	at.containers = at.images
	if layers := first(info.GetContainerFilesystems()).GetFsId().GetMountpoint(); layers != "" && m.config.Features.Enabled(feature.KubeletSeparateDiskGC) {
		at.containers = layers
	}
	m.mountpointsMu.Lock()
	defer m.mountpointsMu.Unlock()
	m.mountpoints = at
	return at, nil
}

// first returns the file system that counts of those that the runtime reports, nil if it
// reports none.
func first(all []*runtimeapi.FilesystemUsage) *runtimeapi.FilesystemUsage {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// Used returns what the images and the writable layers of containers use of their file
// systems, as the runtime says: nil for what it does not say.
func (m *Manager) Used(ctx context.Context) (images, containers *runtimeapi.FilesystemUsage) {
	ctx, cancel := context.WithTimeout(ctx, fileSystemTimeout)
	defer cancel()
	info, err := m.config.Images.ImageFsInfo(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The runtime does not say what its images use", "err", err)
		return nil, nil
	}
	return first(info.GetImageFilesystems()), first(info.GetContainerFilesystems())
}

// collect frees disk space down to the low threshold if the usage of the image
// file system is above the high threshold. A high threshold of 100 percent means
// never.
func (m *Manager) collect(ctx context.Context) error {
	c := m.config.Configuration
	if *c.ImageGCHighThresholdPercent == 100 {
		return nil
	}
	disk, _, err := m.FileSystems(ctx)
	if err != nil {
		return fmt.Errorf("read the free space for images: %w", err)
	}
	if disk.Total == 0 {
		return nil
	}
	used := 100 - int(disk.Bytes*100/disk.Total)
	if used < int(*c.ImageGCHighThresholdPercent) {
		return nil
	}
	want := disk.Total*int64(100-*c.ImageGCLowThresholdPercent)/100 - disk.Bytes
	images, err := m.findUnused(ctx, m.minimum, want)
	if err != nil {
		return err
	}
	freed, err := m.remove(ctx, images, forSpace)
	if err != nil {
		return fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w", want, freed, err)
	}
	if freed >= want {
		return nil
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		used, sizeText(disk.Total), freed)
	m.config.Recorder.Event(node.Reference(m.config.NodeName), v1.EventTypeWarning, "FreeDiskSpaceFailed", message)
	return errors.New(message)
}

// collected reports whether collect failed, and records an event if it did so the time
// before, too: once may pass by itself.
func (m *Manager) collected(ctx context.Context, err error, before bool) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	klog.FromContext(ctx).Error(err, "Removing images that are not in use failed, will try again")
	if before {
		m.config.Recorder.Event(node.Reference(m.config.NodeName), v1.EventTypeWarning, "ImageGCFailed", err.Error())
	}
	return true
}

// sizeText returns a number of bytes as upstream shows it in events.
func sizeText(bytes int64) string {
	size, units := float64(bytes), []string{"KiB", "MiB", "GiB", "TiB"}
	if size < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	for _, unit := range units[:len(units)-1] {
		if size /= 1 << 10; size < 1<<10 {
			return fmt.Sprintf("%.1f %s", size, unit)
		}
	}
	return fmt.Sprintf("%.1f %s", size/(1<<10), units[len(units)-1])
}

// Free removes unused images until want bytes are free, as far as there are
// any, and returns the number of bytes that it freed.
func (m *Manager) Free(ctx context.Context, want int64) (freed int64) {
	images, err := m.findUnused(ctx, m.minimum, want)
	if err == nil {
		freed, err = m.remove(ctx, images, forSpace)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Removing images that are not in use failed")
	}
	return freed
}

// minimum reports whether an image has the minimum age of those that may be removed.
func (m *Manager) minimum(u use) bool {
	return time.Since(u.kept) >= m.config.Configuration.ImageMinimumGCAge.Duration
}

// findUnused returns the images to remove in order to free want bytes, of those that are
// old. It fails if it cannot find out which images are in use.
func (m *Manager) findUnused(ctx context.Context, old func(use) bool, want int64) ([]*runtimeapi.Image, error) {
	images, inUse, err := m.detect(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the images in use: %w", err)
	}
	return unused(images, inUse, m.useOf, old, want), nil
}

// removeOld removes the images that have not been used for imageMaximumGCAge. Uses before
// the kubelet started are not known: an image that it finds counts as used then.
func (m *Manager) removeOld(ctx context.Context) error {
	oldest := m.config.Configuration.ImageMaximumGCAge.Duration
	if oldest == 0 {
		return nil
	}
	images, err := m.findUnused(ctx, func(u use) bool { return time.Since(u.last) >= oldest }, math.MaxInt64)
	if err != nil {
		return err
	}
	if _, err := m.remove(ctx, images, forAge); err != nil {
		return fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w", oldest, err)
	}
	return nil
}

// removeExcess removes the images that were used least recently, if those that are not in
// use have more than mostNames. A high threshold of 100 percent means never.
func (m *Manager) removeExcess(ctx context.Context) error {
	if *m.config.Configuration.ImageGCHighThresholdPercent == 100 {
		return nil
	}
	images, err := m.findUnused(ctx, m.minimum, math.MaxInt64)
	if err == nil {
		_, err = m.remove(ctx, inExcess(images, mostNames), forSpace)
	}
	return err
}

// Why an image is removed, as the metric kubelet_image_garbage_collected_total says.
const forAge, forSpace = "age", "space"

// mostFailures is of how many images an error says why they cannot be removed.
const mostFailures = 10

// remove removes images and returns the number of bytes that it freed. It goes on after one
// that cannot be removed, and returns why.
func (m *Manager) remove(ctx context.Context, images []*runtimeapi.Image, reason string) (freed int64, err error) {
	var failed []error
	more := 0
	for _, i := range images {
		spec := i.GetSpec()
		if spec == nil {
			spec = &runtimeapi.ImageSpec{Image: i.GetId()}
		}
		if err := m.config.Images.RemoveImage(ctx, spec); err != nil {
			if len(failed) < mostFailures {
				failed = append(failed, fmt.Errorf("remove image %s: %w", i.GetId(), err))
			} else {
				more++
			}
			continue
		}
		klog.FromContext(ctx).Info("Removed unused image", "image", i.GetId(), "bytes", i.GetSize())
		m.metrics.collected.WithLabelValues(reason).Inc()
		freed += int64(i.GetSize())
	}
	if more > 0 {
		failed = append(failed, fmt.Errorf("and %d more", more))
	}
	return freed, utilerrors.NewAggregate(failed)
}

// detect returns the images of the runtime and what containers and volumes use
// of them, and records the use.
func (m *Manager) detect(ctx context.Context) ([]*runtimeapi.Image, references, error) {
	images, err := m.config.Images.ListImages(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("list images: %w", err)
	}
	containers, err := m.config.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	inUse := references{}
	for _, c := range containers {
		inUse[c.GetImageId()], inUse[c.GetImageRef()], inUse[c.GetImage().GetImage()] = true, true, true
	}
	if err := m.addVolumes(ctx, inUse); err != nil {
		return nil, nil, err
	}
	if err := m.addMounted(ctx, containers, inUse); err != nil {
		return nil, nil, err
	}
	delete(inUse, "")
	m.recordUse(images, inUse, time.Now())
	return images, inUse, nil
}

// addVolumes adds the ids of the images that active pods have as volumes: their containers
// may start next.
func (m *Manager) addVolumes(ctx context.Context, inUse references) error {
	for reference := range imageVolumes(m.config.Active()) {
		name, err := normalize(reference)
		if err != nil {
			continue
		}
		status, err := m.config.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
		if err != nil {
			return fmt.Errorf("inspect image %q: %w", name, err)
		}
		inUse[status.GetImage().GetId()] = true
	}
	return nil
}

// addMounted adds the images that containers, also ended ones, have mounted as volumes. A
// reference of the pod may mean another image by now.
func (m *Manager) addMounted(ctx context.Context, containers []*runtimeapi.Container, inUse references) error {
	mounting := map[types.UID]bool{}
	for _, pods := range imageVolumes(m.config.Known()) {
		for _, uid := range pods {
			mounting[uid] = true
		}
	}
	for _, c := range containers {
		if !mounting[types.UID(c.GetLabels()[kubelettypes.KubernetesPodUIDLabel])] {
			continue
		}
		answer, err := m.config.Runtime.ContainerStatus(ctx, c.GetId(), false)
		if cri.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("inspect container %s: %w", c.GetId(), err)
		}
		for _, mount := range answer.GetStatus().GetMounts() {
			inUse[mount.GetImage().GetImage()] = true
		}
	}
	return nil
}

// imageVolumes returns the references of image volumes, each with the pods that have it.
func imageVolumes(pods []*v1.Pod) map[string][]types.UID {
	out := map[string][]types.UID{}
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			if source := pod.Spec.Volumes[i].Image; source != nil {
				out[source.Reference] = append(out[source.Reference], pod.UID)
			}
		}
	}
	return out
}

// prune removes the pull records of images that the runtime no longer has.
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
		klog.FromContext(ctx).Error(err, "Removing the records of removed images failed, will try again")
	}
}
