// Package csi mounts the volumes of CSI drivers. It corresponds to upstream's CSI
// volume plugin, and to what its volume manager and operation executor do for
// that plugin.
//
// The records on the disk alone say what is mounted, so that nothing is forgotten
// or mounted twice when the kubelet is killed. Each record is written before the
// call to the driver that it is about, and removed after the call that undoes it:
//
//	ROOT/pods/UID/volumes/kubernetes.io~csi/NAME/
//	  vol_data.json     which volume of which driver the pod has
//	  mount             where NodePublishVolume mounts it, or places its block device
//	ROOT/pods/UID/plugins/kubernetes.io~csi/NAME/
//	  ready             the volume was published completely
//	ROOT/plugins/kubernetes.io/csi/DRIVER/SHA256 OF THE HANDLE/
//	  vol_data.json     which volume of which driver is staged
//	  globalmount       where NodeStageVolume mounts it
//
//	in use ─► attached ─► record ─► stage record ─► NodeStage ─► NodePublish ─► fsGroup ─► ready
//	          the pod ends: NodeUnpublish ─► no record ─► the last user is gone: NodeUnstage ─► no stage record
//	                                                                                            └─► not in use
//
// All paths here and in the records are real ones. A driver that has named its socket by
// a usual path that is not real gets usual paths in every call (package hostpath).
//
// A driver may hang, fail or lie. Every call has a bound, a volume has a lock of
// its own, and nothing is ever removed but empty directories and the records.
package csi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	events "k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/gates"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
)

// Config configures Volumes.
type Config struct {
	Root     string               // of the kubelet
	Paths    hostpath.Directories // how drivers may name what is in Root
	NodeName string
	FS       files.FS
	Mounter  files.Mounter
	Client   *client.Client // nil: volumes are only unmounted
	Recorder events.EventRecorder
	// Health has drivers asked for the health of volumes (CSIVolumeHealth).
	Health bool

	Secret func(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// Token returns a token for the service account of a pod, and when it
	// expires.
	Token func(ctx context.Context, pod *v1.Pod, audience string, expirationSeconds int64) (string, time.Time, error)
	// Node returns the newest known Node object, nil before the first.
	Node func() *v1.Node
	// Report makes the kubelet write the status of its node soon.
	Report func()
	// Wake makes the kubelet sync a pod soon.
	Wake func(uid types.UID)
	// Unmounted is told the end of each attempt to unmount a volume of a driver. It
	// may be nil.
	Unmounted func(driver string, began time.Time, err error)
}

// Volumes mounts and unmounts volumes. Its methods may be called from any
// goroutine, for one pod by one goroutine at a time.
type Volumes struct {
	Config
	drivers *Registry
	objects storagelisters.CSIDriverLister // nil without Client
	synced  cache.InformerSynced
	locks   Locks         // by the directories that volumes are staged in: known also without a record
	freed   chan struct{} // asks Run to look for volumes to unstage
	again   atomic.Bool   // without waiting for back-off

	mu       sync.Mutex // guards what follows
	needs    map[podVolume]*need
	reported []v1.UniqueVolumeName // by InUse
	resumed  bool                  // reported has what an earlier process has reported
}

// podVolume is the volume of a driver that a pod needs, or has.
type podVolume struct {
	pod    types.UID
	volume v1.UniqueVolumeName
}

// need is the state of a podVolume, collected since the kubelet started.
type need struct {
	driver     string
	persistent bool
	since      time.Time
	refreshed  time.Time // when the mounted volume was last brought up to date
	begun      bool      // this kubelet has begun to mount it
	inherited  bool      // an earlier kubelet may have had it published
	warned     bool      // the pod was told that nothing was published
	expansion  expansion
}

// New returns the volumes of a node.
func New(config Config) *Volumes {
	v := &Volumes{Config: config, freed: make(chan struct{}, 1), needs: make(map[podVolume]*need)}
	if config.Client != nil {
		informer := config.Client.Informers.Storage().V1().CSIDrivers()
		v.objects, v.synced = informer.Lister(), informer.Informer().HasSynced
	}
	v.drivers = newRegistry(v)
	return v
}

// Drivers returns the handler of drivers for the watcher of plugins.
func (v *Volumes) Drivers() *Registry { return v.drivers }

// Source is a volume of a driver, as a pod refers to it.
type Source struct {
	Volume *v1.Volume // of the pod
	// Of a persistent volume only.
	Claim *v1.PersistentVolumeClaim
	PV    *v1.PersistentVolume
}

// name returns the name of the volume in paths and in messages.
func (s *Source) name() string {
	if s.PV != nil {
		return s.PV.Name
	}
	return s.Volume.Name
}

// driver returns the name of the volume's driver.
func (s *Source) driver() string {
	if s.PV != nil {
		return s.PV.Spec.CSI.Driver
	}
	return s.Volume.CSI.Driver
}

// handle returns the driver's name for the volume. That of an inline volume is
// made from the pod's.
func (s *Source) handle(pod types.UID) string {
	if s.PV != nil {
		return s.PV.Spec.CSI.VolumeHandle
	}
	return "csi-" + sum(string(pod)+s.Volume.Name)
}

// readOnly reports whether the volume is to be published read-only.
func (s *Source) readOnly() bool {
	if s.PV != nil {
		return s.PV.Spec.CSI.ReadOnly || s.Volume.PersistentVolumeClaim != nil && s.Volume.PersistentVolumeClaim.ReadOnly
	}
	return s.Volume.CSI.ReadOnly != nil && *s.Volume.CSI.ReadOnly
}

// block reports whether the volume is a block device, without a file system.
func (s *Source) block() bool {
	return s.PV != nil && s.PV.Spec.VolumeMode != nil && *s.PV.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// firstCall returns the step of the first call to the driver, and how upstream says that
// it cannot be made.
func (s *Source) firstCall() (step, failure string) {
	switch {
	case s.block():
		return "MountVolume.MountDevice", "blockMapper.SetUpDevice failed to get CSI client"
	case s.PV != nil:
		return "MountVolume.MountDevice", "attacher.MountDevice failed to create newCsiDriverClient"
	}
	return "MountVolume.SetUp", "mounter.SetUpAt failed to get CSI client"
}

func (s *Source) mode() storagev1.VolumeLifecycleMode {
	if s.PV != nil {
		return storagev1.VolumeLifecyclePersistent
	}
	return storagev1.VolumeLifecycleEphemeral
}

func sum(text string) string {
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:])
}

func (v *Volumes) podDir(uid types.UID) string { return filepath.Join(v.Root, "pods", string(uid)) }

// volumesDir returns the directory with a directory for each volume of a pod.
func (v *Volumes) volumesDir(uid types.UID) string {
	return filepath.Join(v.podDir(uid), "volumes", "kubernetes.io~csi")
}

// Owns reports whether a mount point below the directory of a pod is a volume's,
// which its driver unmounts.
func (v *Volumes) Owns(uid types.UID, point string) bool {
	_, ok := files.Beneath(v.volumesDir(uid), point)
	return ok
}

func (v *Volumes) readyFile(uid types.UID, name string) string {
	return filepath.Join(v.podDir(uid), "plugins", "kubernetes.io~csi", name, "ready")
}

func (v *Volumes) stagesDir() string { return filepath.Join(v.Root, "plugins", csivolume.PluginName) }

// stageDir returns the directory of a staged volume.
func (v *Volumes) stageDir(driver, handle string) string {
	return filepath.Join(v.stagesDir(), driver, sum(handle))
}

// Files and directories in the directories of volumes.
const (
	recordName  = "vol_data.json"
	targetName  = "mount"
	stagingName = "globalmount"
)

// Failure is an error of a step, for users.
type Failure struct {
	Step   string // such as "MountVolume.SetUp"
	Volume string
	Err    error
}

// Error says what failed as upstream's events do.
func (f *Failure) Error() string {
	return f.Step + " failed for volume \"" + f.Volume + "\" : " + f.Err.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Reason returns the reason of the event about the failure, upstream's. Block devices are
// mapped, and other volumes are mounted.
func (f *Failure) Reason() string {
	if strings.HasPrefix(f.Step, "MapVolume.") {
		return "FailedMapVolume"
	}
	return "FailedMount"
}

// ErrAttaching says that a volume is not attached yet, which is no failure.
var ErrAttaching = errors.New("the volume is not attached yet")

// ErrAttachmentLimit says that a volume cannot be attached because the node has as
// many as its driver attaches. Waiting does not help the pod.
var ErrAttachmentLimit = errors.New("Node has reached its volume attachment limit, rejecting pod") //nolint:staticcheck // upstream's wording

// Locks holds the volumes that a goroutine works on, by names or paths of theirs. The
// zero value holds none.
type Locks struct{ held gates.Gates[string] }

// Lock waits until no other goroutine works on the volume. It returns an error if ctx ends
// before that.
func (l *Locks) Lock(ctx context.Context, volume string) (unlock func(), err error) {
	return l.held.Enter(ctx, volume, 1)
}
