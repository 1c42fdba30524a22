package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/supervise"
)

// mount is an attempt to give a volume to a pod.
type mount struct {
	volumes      *Volumes
	pod          *v1.Pod
	source       Source
	record       record
	endpoint     endpoint
	object       *storagev1.CSIDriver // nil: the driver has none
	capabilities capabilities
	attachment   map[string]string // that the driver gave when it attached the volume
	recorded     bool              // the pod had the volume, or may have had it
	inherited    bool              // since an earlier kubelet
	called       bool              // the driver was asked to mount it since
}

// refreshPeriod is the shortest time between two looks at a mounted volume.
const refreshPeriod = 30 * time.Second

// Fresh reports whether a mounted volume was brought up to date a short while
// ago.
func (v *Volumes) Fresh(uid types.UID, driver, handle string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.needs[podVolume{uid, csivolume.UniqueName(driver, handle)}]
	return w != nil && time.Since(w.refreshed) < refreshPeriod
}

// SetUp mounts a volume for a pod and returns its path: the path of a directory,
// or of a block device if the volume is one. A volume that is mounted is expanded
// and published again as far as its claim and its driver ask for that. An error
// is a *Failure, or about the driver or the attachment.
func (v *Volumes) SetUp(ctx context.Context, pod *v1.Pod, source Source) (string, error) {
	m, err := v.prepare(pod, source)
	if err != nil {
		return "", err
	}
	m.recordNeed()
	before := v.Mounted(pod.UID, m.record.Name)
	if before != "" && !m.republishes() && (m.source.readOnly() || !m.expands()) {
		m.setRefreshed()
		return before, nil
	}
	if m.endpoint, err = v.drivers.endpoint(m.record.Driver); err != nil {
		step, call := source.firstCall()
		return "", m.failure(step, fmt.Errorf("%s: %s: %w", csivolume.PluginName, call, err))
	}
	if m.capabilities, err = askCapabilities(ctx, m.endpoint); err != nil {
		return "", m.failure("MountVolume.SetUp", err)
	}
	if err := m.awaitAttachment(ctx, before != ""); err != nil {
		return "", err
	}
	unlock, err := v.locks.Lock(ctx, v.stageDir(m.record.Driver, m.record.Handle))
	if err != nil {
		return "", err
	}
	if before != "" {
		if err := m.refresh(ctx, unlock); err != nil {
			return "", err
		}
		return m.target(), nil
	}
	defer unlock()
	if err := m.mountAll(ctx); err != nil {
		return "", err
	}
	m.setRefreshed()
	return m.target(), nil
}

// maxRefresh bounds the calls and the writes of one refresh.
const maxRefresh = 3 * callTimeout

// refresh brings a mounted volume up to date, which is locked, and unlocks it. When ctx
// ends, refresh returns and the driver goes on: it may be growing a file system, which
// takes longer than the pod can wait.
func (m *mount) refresh(ctx context.Context, unlock func()) error {
	done := make(chan error, 1)
	supervise.Go(ctx, func() {
		defer unlock()
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxRefresh)
		defer cancel()
		err := supervise.Call(func() error { return m.update(whole) })
		if err == nil {
			m.setRefreshed()
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return m.failure("MountVolume.SetUp", fmt.Errorf("the driver is still at work on the volume: %w", ctx.Err()))
	}
}

// prepare checks that the volume is of a kind that can be mounted.
func (v *Volumes) prepare(pod *v1.Pod, source Source) (*mount, error) {
	name := source.driver()
	if err := checkDriver(name); err != nil {
		return nil, err
	}
	object, err := v.driverObject(name)
	if err != nil {
		return nil, err
	}
	if err := checkMode(name, object, source.mode()); err != nil {
		return nil, err
	}
	handle := source.handle(pod.UID)
	if len(handle) > maxHandle {
		return nil, fmt.Errorf("the handle of the volume has %d bytes, more than %d", len(handle), maxHandle)
	}
	return &mount{volumes: v, pod: pod, source: source, object: object, record: record{
		Name: source.name(), Handle: handle, Driver: name, Node: v.NodeName,
		AttachmentID: csivolume.AttachmentName(handle, name, v.NodeName), Mode: source.mode(),
	}}, nil
}

func (m *mount) setRefreshed() {
	m.withNeed(func(n *need) {
		n.refreshed = time.Now()
		if claim := m.source.Claim; claim != nil && n.expansion.size == nil {
			size := claim.Status.Capacity[v1.ResourceStorage]
			n.expansion.size = &size
		}
	})
}

// republishes reports whether the driver wants the volume to be published again
// from time to time.
func (m *mount) republishes() bool {
	return m.object != nil && m.object.Spec.RequiresRepublish != nil && *m.object.Spec.RequiresRepublish
}

// driverObject returns the CSIDriver object of a driver, nil if there is none.
func (v *Volumes) driverObject(name string) (*storagev1.CSIDriver, error) {
	if v.objects == nil {
		return nil, errors.New("volumes of CSI drivers need an API server")
	}
	if !v.synced() {
		return nil, errors.New("the CSIDriver objects have not been read yet")
	}
	object, err := v.objects.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // a driver may have no object
	}
	return object, err
}

// checkMode returns an error if the driver does not have persistent volumes, or
// ephemeral ones. A driver without a CSIDriver object supports persistent
// volumes only.
func checkMode(name string, object *storagev1.CSIDriver, mode storagev1.VolumeLifecycleMode) error {
	modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	if object != nil && len(object.Spec.VolumeLifecycleModes) > 0 {
		modes = object.Spec.VolumeLifecycleModes
	}
	switch {
	case slices.Contains(modes, mode):
		return nil
	case object == nil:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, name)
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, name, modes)
}

// failure returns the error of a step, by the name that upstream gives it for volumes of
// this kind.
func (m *mount) failure(step string, err error) error {
	if m.source.block() {
		step = cmp.Or(map[string]string{
			"MountVolume.WaitForAttach": "MapVolume.WaitForAttach", "MountVolume.MountDevice": "MapVolume.SetUpDevice", "MountVolume.SetUp": "MapVolume.MapPodDevice",
		}[step], step)
	}
	return &Failure{Step: step, Volume: m.record.Name, Err: err}
}

func (m *mount) dir() string    { return filepath.Join(m.volumes.volumesDir(m.pod.UID), m.record.Name) }
func (m *mount) target() string { return filepath.Join(m.dir(), targetName) }

// staging returns where the volume is staged, "" if it is not.
func (m *mount) staging() string {
	if m.source.PV == nil || !m.capabilities[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] {
		return ""
	}
	return filepath.Join(m.volumes.stageDir(m.record.Driver, m.record.Handle), stagingName)
}

// mountAll stages and publishes the volume. The lock of the volume is held.
func (m *mount) mountAll(ctx context.Context) error {
	if err := m.checkUsers(); err != nil {
		return m.failure("MountVolume.SetUp", err)
	}
	earlier, err := m.volumes.readRecord(m.dir())
	m.recorded = !errors.Is(err, errNoRecord)
	m.begin()
	if err == nil && earlier.volume() != m.record.volume() {
		return m.failure("MountVolume.SetUp", fmt.Errorf("the pod has another volume of this name: %s", earlier.volume()))
	}
	if err := m.volumes.writeRecord(m.dir(), m.record); err != nil {
		return m.failure("MountVolume.SetUp", err)
	}
	if err := m.stage(ctx); err != nil {
		m.abandon(err)
		return m.failure("MountVolume.MountDevice", err)
	}
	if err := m.expand(ctx, m.staging()); err != nil {
		m.abandon(err)
		return m.failure("MountVolume.NodeExpandVolume", err)
	}
	if err := m.publish(ctx); err != nil {
		m.abandon(err)
		return m.failure("MountVolume.SetUp", err)
	}
	if err := checkPublished(ctx, m); err != nil {
		return m.failure("MountVolume.SetUp", err)
	}
	if m.staging() == "" {
		if err := m.expand(ctx, m.target()); err != nil {
			return m.failure("MountVolume.NodeExpandVolume", err)
		}
	}
	if err := m.checkDevice(); err != nil {
		return m.failure("MountVolume.SetUp", err)
	}
	if err := m.own(); err != nil {
		return m.failure("MountVolume.SetUp", err)
	}
	if err := m.volumes.setReady(m.pod.UID, m.record.Name, m.target()); err != nil {
		return m.failure("MountVolume.SetUp", err)
	}
	return nil
}

// checkUsers returns an error if the volume is for one pod only and another has
// it, or if the pod may have another volume in its place.
func (m *mount) checkUsers() error {
	own := placed{pod: m.pod.UID, dir: m.dir()}
	own.record, own.err = m.volumes.readRecord(own.dir)
	if err := m.volumes.unreadable(&own); err != nil {
		return fmt.Errorf("read the record of the volume: %w", err)
	}
	if m.source.PV == nil || !slices.Contains(m.source.PV.Spec.AccessModes, v1.ReadWriteOncePod) {
		return nil
	}
	users, err := m.volumes.users(m.record.volume())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(users, func(uid types.UID) bool { return uid != m.pod.UID }) {
		return errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	return nil
}

// begin notes that the volume is about to be mounted. A record that is there the first
// time was made by an earlier kubelet.
func (m *mount) begin() {
	m.withNeed(func(n *need) {
		if !n.begun {
			n.begun, n.inherited = true, m.recorded
		}
		m.inherited = n.inherited
	})
}

// abandon removes the pod's record after err if the driver certainly published
// nothing: it was never called, or refused its last call. The end of the pod then
// does not depend on the driver. Any other error may come after a publication that
// succeeded or still will, and so may any after a call of an earlier kubelet.
func (m *mount) abandon(err error) {
	untouched, refused := !m.recorded && !m.called, m.called && isFinal(err)
	if m.inherited || !untouched && !refused {
		return
	}
	if mounted, err := m.volumes.isMounted(m.target()); err != nil || mounted {
		return
	}
	if m.volumes.release(m.dir(), m.target()) == nil {
		m.volumes.wakeUnstager()
	}
}

// stage stages the volume, which the driver may have done already.
func (m *mount) stage(ctx context.Context) error {
	path := m.staging()
	if path == "" {
		return nil
	}
	secrets, err := m.secrets(ctx, "NodeStageSecretRef", m.source.PV.Spec.CSI.NodeStageSecretRef)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := m.volumes.writeRecord(dir, record{Driver: m.record.Driver, Handle: m.record.Handle}); err != nil {
		return err
	}
	// Below the directory another file system may be mounted already.
	if mounted, err := m.volumes.isMounted(path); err != nil {
		return err
	} else if !mounted {
		if err := m.volumes.FS.MkdirAll(path, 0o750); err != nil {
			return err
		}
	}
	at := place{m.volumes, m.endpoint, path}
	before := at.isAstray() // such as the volume of another kubelet of the machine
	err = callWhole(ctx, m.endpoint, func(ctx context.Context, node csipb.NodeClient) error {
		_, err := node.NodeStageVolume(ctx, &csipb.NodeStageVolumeRequest{
			VolumeId: m.record.Handle, PublishContext: m.attachment, StagingTargetPath: m.endpoint.named(path), VolumeCapability: m.capability(),
			Secrets: secrets, VolumeContext: m.source.PV.Spec.CSI.VolumeAttributes,
		})
		return err
	})
	if err == nil && !before && at.isAstray() {
		return at.astray(m.record.Driver)
	}
	return err
}

// publish mounts the volume for the pod.
func (m *mount) publish(ctx context.Context) error {
	attributes, ref := map[string]string{}, (*v1.SecretReference)(nil)
	if pv := m.source.PV; pv != nil {
		maps.Copy(attributes, pv.Spec.CSI.VolumeAttributes)
		ref = pv.Spec.CSI.NodePublishSecretRef
	} else {
		inline := m.source.Volume.CSI
		maps.Copy(attributes, inline.VolumeAttributes)
		if inline.NodePublishSecretRef != nil {
			ref = &v1.SecretReference{Namespace: m.pod.Namespace, Name: inline.NodePublishSecretRef.Name}
		}
	}
	secrets, err := m.secrets(ctx, "NodePublishSecretRef", ref)
	if err != nil {
		return err
	}
	if err := m.describePod(ctx, attributes, &secrets); err != nil {
		return err
	}
	m.called = true
	return callWhole(ctx, m.endpoint, func(ctx context.Context, node csipb.NodeClient) error {
		_, err := node.NodePublishVolume(ctx, &csipb.NodePublishVolumeRequest{
			VolumeId: m.record.Handle, PublishContext: m.attachment, StagingTargetPath: m.endpoint.named(m.staging()), TargetPath: m.endpoint.named(m.target()),
			VolumeCapability: m.capability(), Readonly: m.source.readOnly(), Secrets: secrets, VolumeContext: attributes,
		})
		return err
	})
}

// update expands a mounted volume, and publishes it again if the driver asks for
// that. The lock of the volume is held.
func (m *mount) update(ctx context.Context) error {
	if m.republishes() {
		if err := m.publish(ctx); err != nil {
			return m.failure("MountVolume.SetUp", err)
		}
		if err := m.own(); err != nil { // the driver may have written new files
			return m.failure("MountVolume.SetUp", err)
		}
	}
	if m.source.readOnly() { // the pod was told of that when it got the volume
		return nil
	}
	if err := m.expand(ctx, m.target()); err != nil {
		return m.failure("NodeExpandVolume.NodeExpandVolume", err)
	}
	return nil
}

// checkDevice returns an error if the driver has published anything but a block
// device for a volume that is to be one.
func (m *mount) checkDevice() error {
	if !m.source.block() {
		return nil
	}
	mode, err := m.volumes.FS.Stat(m.target())
	if err != nil {
		return fmt.Errorf("the driver has published no block device: %w", err)
	}
	if mode&fs.ModeDevice == 0 || mode&fs.ModeCharDevice != 0 {
		return fmt.Errorf("the driver has not published a block device at %s, but %s", m.target(), mode)
	}
	return nil
}

// own gives the volume to the pod's fsGroup, if the driver's policy says so and
// the driver has not done it.
func (m *mount) own() error {
	sc := m.pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil || m.source.block() || !m.changesOwner() {
		return nil
	}
	change := GroupChange{FS: m.volumes.FS, Recorder: m.volumes.Recorder, Pod: m.pod, Dir: m.target()}
	change.Shown = strings.TrimPrefix(change.Dir, filepath.Join(m.volumes.Root, "pods")+"/")
	if err := change.Apply(); err != nil {
		return fmt.Errorf("applyFSGroup failed for vol %s: %w", m.record.Handle, err)
	}
	return nil
}

// changesOwner reports whether the volume's files may be given to a group.
func (m *mount) changesOwner() bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if m.object != nil && m.object.Spec.FSGroupPolicy != nil {
		policy = *m.object.Spec.FSGroupPolicy
	}
	if policy == storagev1.NoneFSGroupPolicy || m.source.readOnly() || m.capabilities[csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
		return false
	}
	if policy == storagev1.FileFSGroupPolicy {
		return true
	}
	if m.fsType() == "" {
		return false
	}
	if m.source.PV == nil {
		return true
	}
	modes := m.source.PV.Spec.AccessModes
	return slices.Contains(modes, v1.ReadWriteOnce) || slices.Contains(modes, v1.ReadWriteOncePod)
}
