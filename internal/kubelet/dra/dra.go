// Package dra has the drivers of the node prepare the devices of ResourceClaims
// for the pods that use them (KEP-4381). It corresponds to upstream's DRA manager.
//
//	driver ──registration socket──► Registry ──► connection, health of devices
//	                                   │           └─► gone for 30 s: its ResourceSlices are deleted
//	pod starts ─► claims allocated, reserved for the pod
//	              ─► checkpoint ─► NodePrepareResources ─► checkpoint ─► CDI devices of containers
//	pod ends   ─► the last pod of the claim: NodeUnprepareResources ─► checkpoint
//
// The checkpoint names the devices that a driver may have prepared from before
// the driver is called until the driver has unprepared them. So nothing is
// forgotten when the kubelet is killed. A driver may then be called again, which
// the API of drivers allows.
package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/dra/checkpoint"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/supervise"
)

// The checkpoint, in the root directory of the kubelet.
const (
	checkpointName = "dra_manager_state"
	maxCheckpoint  = 64 << 20
)

// Periods of the manager.
const (
	// reconcilePeriod is how often it looks for claims of pods that are gone. It
	// is upstream's.
	reconcilePeriod = time.Minute
	// lookPeriod is how often it looks for drivers that are gone and for devices
	// whose health was not reported for too long.
	lookPeriod = 5 * time.Second
)

// Config configures a Manager.
type Config struct {
	Root     string // of the kubelet
	NodeName string
	Files    files.FS
	Client   kubernetes.Interface // nil: pods with claims do not start
	Features *feature.Set
	Metrics  prometheus.Registerer
	// Node returns the newest known Node object, nil before the first.
	Node func() *v1.Node
	// Wake is called for pods whose devices have changed their health.
	Wake func(uid types.UID)
	// Refresh is called for pods that may go on because a driver is there now.
	Refresh func(uid types.UID)
	// SourcesReady reports whether all pods are known.
	SourcesReady func() bool
	// Active returns the pods that may have running containers.
	Active func() []*v1.Pod
}

// Manager is the DRA manager. Its methods may be called from any goroutine.
type Manager struct {
	config  Config
	metrics metrics
	drivers *Registry
	health  *health
	locks   locks
	state   state

	mu      sync.Mutex          // guards waiting
	waiting sets.Set[types.UID] // pods whose claims could not be prepared or unprepared
}

// New returns a manager that has prepared nothing.
func New(c Config) *Manager {
	m := &Manager{config: c, waiting: sets.Set[types.UID]{}, health: &health{began: time.Now(), devices: map[device]condition{}, drivers: sets.Set[string]{}}}
	m.drivers = newRegistry(m)
	m.state.write = m.write
	m.metrics = newMetrics(c.Metrics, &m.state)
	return m
}

// Drivers returns the handler of drivers for the watcher of plugins.
func (m *Manager) Drivers() *Registry { return m.drivers }

func (m *Manager) checkpointFile() string {
	return filepath.Join(m.config.Root, checkpointName)
}

// Recover reads what an earlier kubelet has prepared. A checkpoint that cannot
// be read is logged and replaced. The claims of pods that run are then prepared
// again; claims of pods that have ended since stay prepared.
func (m *Manager) Recover(ctx context.Context) {
	claims, err := m.read()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Continuing without the resource claims that an earlier kubelet has prepared; "+
			"drain the node and restart its drivers to be sure that no device of a pod that has ended stays prepared", "file", m.checkpointFile())
		return
	}
	m.state.restore(claims)
}

// read reads the checkpoint.
func (m *Manager) read() ([]checkpoint.Claim, error) {
	raw, err := m.config.Files.ReadFile(m.checkpointFile(), maxCheckpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the prepared resource claims: %w", err)
	}
	claims, err := checkpoint.Unmarshal(raw)
	if err != nil {
		return nil, fmt.Errorf("read the prepared resource claims: %w", err)
	}
	return claims, nil
}

// write writes the checkpoint.
func (m *Manager) write(claims []checkpoint.Claim) error {
	raw, err := checkpoint.Marshal(claims)
	if err == nil && len(raw) > maxCheckpoint { // the next kubelet could not read it
		err = fmt.Errorf("the resource claims take %d bytes, more than %d", len(raw), maxCheckpoint)
	}
	if err == nil {
		err = m.config.Files.Replace(m.checkpointFile(), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	return nil
}

// Run follows the drivers, and unprepares the claims of pods that are gone,
// until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	var loops supervise.WaitGroup
	defer loops.Wait()
	loops.Go(ctx, func() { m.drivers.run(ctx) })
	loops.Go(ctx, func() {
		supervise.Every(ctx, lookPeriod, func() {
			supervise.Contain(ctx, "resource claims", func() { m.changed(m.health.expire(time.Now())) })
		})
	})
	supervise.Every(ctx, reconcilePeriod, func() {
		supervise.Contain(ctx, "resource claims", func() { m.reconcile(ctx) })
	})
}

// ended records how an operation on the claims of a pod has ended.
func (m *Manager) ended(operation string, pod types.UID, began time.Time, err error) {
	m.metrics.operation(operation, began, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting.Delete(pod); err != nil {
		m.waiting.Insert(pod)
	}
}

// retry makes the pods go on whose claims could not be prepared or unprepared.
func (m *Manager) retry() {
	m.mu.Lock()
	pods := sets.List(m.waiting)
	m.waiting = sets.Set[types.UID]{}
	m.mu.Unlock()
	for _, uid := range pods {
		m.config.Refresh(uid)
	}
}

// reconcile unprepares the claims of pods that are gone.
func (m *Manager) reconcile(ctx context.Context) {
	if !m.config.SourcesReady() {
		return
	}
	for _, uid := range topologymanager.Inactive(m.state.pods(), m.config.Active) {
		if err := m.Unprepare(ctx, uid); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Unpreparing the resource claims of a pod that is gone failed, will try again", "podUID", uid, "in", reconcilePeriod)
		}
	}
}
