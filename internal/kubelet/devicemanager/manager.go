// Package devicemanager gives containers the devices of device plugins. It
// corresponds to upstream's device manager.
//
//	plugin ──Register──► kubelet.sock           device-plugins/
//	       ◄─GetDevicePluginOptions─            PLUGIN.sock
//	       ──ListAndWatch─────► healthy, unhealthy devices ─► status of the node
//	       ◄─GetPreferredAllocation, Allocate─  admission of a pod
//	       ◄─PreStartContainer─                 start of a container
//
// A checkpoint keeps the allocations, so that a kubelet knows which devices its
// containers have after it was killed.
package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/devicemanager/checkpoint"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// checkpointName is the file in the directory of device plugins that keeps what
// is allocated.
const (
	checkpointName = "kubelet_internal_checkpoint"
	maxCheckpoint  = 64 << 20
)

// stopGracePeriod is how long a node keeps the capacity of a plugin that has
// stopped.
const stopGracePeriod = 5 * time.Minute

// Config configures a Manager.
type Config struct {
	Dir     string // of the sockets and the checkpoint
	Files   files.FS
	Paths   hostpath.Directories // how plugins may name directories of the kubelet
	Nodes   []int                // the machine's NUMA nodes
	Metrics prometheus.Registerer
	// Changed is called when capacities have changed.
	Changed func()
	// Wake is called for pods whose devices have changed their health.
	Wake func(uid types.UID)
	// SourcesReady reports whether all pods are known.
	SourcesReady func() bool
	// Active returns the pods that may have running containers.
	Active func() []*v1.Pod
}

// Manager is the device manager. Its methods may be called from any goroutine.
type Manager struct {
	config  Config
	metrics metrics
	limit   int // of the checkpoint, in bytes

	writing sync.Mutex // serializes writes of the checkpoint

	mu        sync.Mutex // guards what follows
	resources map[string]*resource
	removed   sets.Set[string] // resources whose plugins were gone for too long
	pods      map[types.UID]map[string]map[string]*allocation
	reusable  map[types.UID]map[string]sets.Set[string]
	unserved  error // why plugins cannot register; nil: they can, or Run has not begun
}

// resource is an extended resource of a device plugin. Without a plugin,
// devices are the devices of its last plugin.
type resource struct {
	plugin  *plugin                        // nil: stopped
	standby []*plugin                      // that have registered before it and are still there, the last one last
	options *pluginapi.DevicePluginOptions // of the last plugin
	devices map[string]*pluginapi.Device
	stopped time.Time
}

// put makes a plugin the one of the resource. It returns the plugins that are not
// needed any more; the others stand by for the time when this one ends, as while a
// DaemonSet replaces its pods. The devices stay until the plugin reports its own.
func (r *resource) put(p *plugin) (replaced []*plugin) {
	before := r.standby
	if r.plugin != nil {
		before = append(before, r.plugin)
	}
	r.plugin, r.options, r.standby = p, p.options, nil
	for i, b := range before {
		if b.endpoint == p.endpoint || i < len(before)-maxStandby {
			replaced = append(replaced, b)
		} else {
			r.standby = append(r.standby, b)
		}
	}
	return replaced
}

// remove removes a plugin that has ended. The last one that stands by takes its
// place; without one, the devices are unhealthy from now on.
func (r *resource) remove(p *plugin) {
	if r.plugin != p {
		r.standby = slices.DeleteFunc(r.standby, func(s *plugin) bool { return s == p })
		return
	}
	if last := len(r.standby) - 1; last >= 0 {
		r.plugin, r.standby = r.standby[last], r.standby[:last]
		r.options = r.plugin.options
		if r.plugin.devices != nil {
			r.devices = r.plugin.devices
		}
		return
	}
	unhealthy := make(map[string]*pluginapi.Device, len(r.devices))
	for id, d := range r.devices {
		unhealthy[id] = &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy, Topology: d.GetTopology()}
	}
	r.plugin, r.devices, r.stopped = nil, unhealthy, time.Now()
}

func (r *resource) healthy() sets.Set[string] {
	out := sets.Set[string]{}
	for id, d := range r.devices {
		if d.GetHealth() == pluginapi.Healthy && r.plugin != nil {
			out.Insert(id)
		}
	}
	return out
}

// allocation holds the devices of one resource that a container has, and the
// plugin's response.
type allocation struct {
	devices checkpoint.DevicesPerNUMA
	answer  *pluginapi.ContainerAllocateResponse
}

func (a *allocation) ids() sets.Set[string] {
	out := sets.Set[string]{}
	for _, ids := range a.devices {
		out.Insert(ids...)
	}
	return out
}

type metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

// New returns a manager that has not allocated anything.
func New(c Config) *Manager {
	m := &Manager{
		config: c, limit: maxCheckpoint, resources: map[string]*resource{}, removed: sets.Set[string]{},
		pods: map[types.UID]map[string]map[string]*allocation{}, reusable: map[types.UID]map[string]sets.Set[string]{},
		metrics: metrics{
			registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "kubelet_device_plugin_registration_total", Help: "Cumulative number of device plugin registrations. Broken down by resource name."},
				[]string{"resource_name"}),
			allocations: nativehistogram.NewVec(prometheus.HistogramOpts{
				Name: "kubelet_device_plugin_alloc_duration_seconds", Help: "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
				Buckets: prometheus.DefBuckets}, []string{"resource_name"}),
		},
	}
	if c.Metrics != nil {
		c.Metrics.MustRegister(m.metrics.registrations, m.metrics.allocations)
	}
	return m
}

func (m *Manager) checkpointFile() string { return filepath.Join(m.config.Dir, checkpointName) }

// Recover reads what an earlier kubelet has allocated. A checkpoint that cannot
// be read is logged and replaced, as upstream does: the devices of running
// containers are then not known.
func (m *Manager) Recover(ctx context.Context) {
	if err := m.restore(); err != nil {
		klog.FromContext(ctx).Error(err, "Continuing without the devices that an earlier kubelet has allocated; drain the node to be sure that no device is used twice", "file", m.checkpointFile())
	}
}

// restore reads the checkpoint. The resources in it have no devices until their
// plugins register.
func (m *Manager) restore() error {
	raw, err := m.config.Files.ReadFile(m.checkpointFile(), int64(m.limit))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the devices of containers: %w", err)
	}
	entries, registered, err := checkpoint.Unmarshal(raw)
	if err != nil {
		return fmt.Errorf("read the devices of containers from %s: %w", m.checkpointFile(), err)
	}
	answers := make([]*pluginapi.ContainerAllocateResponse, len(entries))
	for i, e := range entries {
		answers[i] = &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(e.AllocResp, answers[i]); err != nil {
			return fmt.Errorf("read the devices of containers from %s: pod %s, container %s: %w", m.checkpointFile(), e.PodUID, e.ContainerName, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range registered {
		m.resources[name] = &resource{stopped: time.Now()}
	}
	for i, e := range entries {
		m.set(types.UID(e.PodUID), e.ContainerName, e.ResourceName, &allocation{devices: e.DeviceIDs, answer: answers[i]})
	}
	return nil
}

// set records what a container has. m.mu is held.
func (m *Manager) set(uid types.UID, container, resource string, a *allocation) {
	if m.pods[uid] == nil {
		m.pods[uid] = map[string]map[string]*allocation{}
	}
	if m.pods[uid][container] == nil {
		m.pods[uid][container] = map[string]*allocation{}
	}
	m.pods[uid][container][resource] = a
}

// save writes the checkpoint.
func (m *Manager) save() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	var entries []checkpoint.PodDevicesEntry
	for _, uid := range sortedKeys(m.pods) {
		for _, container := range sortedKeys(m.pods[uid]) {
			for _, name := range sortedKeys(m.pods[uid][container]) {
				a := m.pods[uid][container][name]
				answer, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.answer)
				if err != nil {
					m.mu.Unlock()
					return fmt.Errorf("keep the devices of pod %s, container %s: %w", uid, container, err)
				}
				entries = append(entries, checkpoint.PodDevicesEntry{
					PodUID: string(uid), ContainerName: container, ResourceName: name, DeviceIDs: a.devices, AllocResp: answer,
				})
			}
		}
	}
	registered := map[string][]string{}
	for name, r := range m.resources {
		registered[name] = sets.List(r.healthy())
	}
	raw, err := checkpoint.Marshal(entries, registered)
	m.mu.Unlock()
	if err == nil && len(raw) > m.limit { // the next kubelet could not read it
		err = fmt.Errorf("the devices of the node and of its containers take %d bytes, more than %d", len(raw), m.limit)
	}
	if err == nil {
		err = m.config.Files.MkdirAll(m.config.Dir, 0o750)
	}
	if err == nil {
		err = m.config.Files.Replace(m.checkpointFile(), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("failed to write checkpoint file %q: %w", checkpointName, err)
	}
	return nil
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// used returns the devices of a resource that containers have. m.mu is held.
func (m *Manager) used(name string) sets.Set[string] {
	out := sets.Set[string]{}
	for _, containers := range m.pods {
		for _, resources := range containers {
			if a := resources[name]; a != nil {
				out = out.Union(a.ids())
			}
		}
	}
	return out
}

// Manages reports whether the resource is one of a device plugin, or was.
func (m *Manager) Manages(name v1.ResourceName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.manages(string(name))
}

func (m *Manager) manages(name string) bool {
	return m.resources[name] != nil || m.used(name).Len() > 0
}

// update replaces the devices of a plugin. Those of a plugin that stands by become
// the resource's once it takes the place of another one.
func (m *Manager) update(ctx context.Context, p *plugin, devices []*pluginapi.Device) {
	byID := make(map[string]*pluginapi.Device, len(devices))
	for _, d := range devices {
		byID[d.GetID()] = d
	}
	m.mu.Lock()
	p.devices = byID
	r := m.resources[p.resource]
	if r == nil || r.plugin != p {
		m.mu.Unlock()
		return
	}
	before := r.devices
	r.devices = byID
	m.mu.Unlock()
	m.changed(ctx, p.resource, before)
}

// stop records that a plugin has ended.
func (m *Manager) stop(ctx context.Context, p *plugin) {
	m.mu.Lock()
	r := m.resources[p.resource]
	if r == nil {
		m.mu.Unlock()
		return
	}
	before, current := r.devices, r.plugin == p
	r.remove(p)
	m.mu.Unlock()
	if current {
		m.changed(ctx, p.resource, before)
	}
}

// changed keeps the devices of a resource, and tells the node and the pods whose
// devices have changed their health since before.
func (m *Manager) changed(ctx context.Context, name string, before map[string]*pluginapi.Device) {
	if err := m.save(); err != nil {
		klog.FromContext(ctx).Error(err, "The devices are not kept for the next kubelet", "resource", name)
	}
	m.mu.Lock()
	var pods []types.UID
	for uid, containers := range m.pods {
		if m.resources[name] != nil && slices.ContainsFunc(slices.Collect(maps.Values(containers)), func(resources map[string]*allocation) bool {
			a := resources[name]
			return a != nil && slices.ContainsFunc(a.ids().UnsortedList(), func(id string) bool {
				return before[id].GetHealth() != m.resources[name].devices[id].GetHealth()
			})
		}) {
			pods = append(pods, uid)
		}
	}
	m.mu.Unlock()
	for _, uid := range pods {
		m.config.Wake(uid)
	}
	m.config.Changed()
}

// Release frees the devices of a pod.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	_, had := m.pods[uid]
	m.forget(uid)
	m.mu.Unlock()
	if had {
		if err := m.save(); err != nil { // the next allocation tries again
			klog.Background().Error(err, "The devices of a pod that has ended are not free for the next kubelet", "podUID", uid)
		}
	}
}

// releaseInactive frees the devices of pods that are gone.
func (m *Manager) releaseInactive() {
	if m.config.SourcesReady() {
		topologymanager.ReleaseInactive(&m.mu, m.pods, m.config.Active, m.forget)
	}
}

// forget forgets the devices of a pod. m.mu is held.
func (m *Manager) forget(uid types.UID) {
	delete(m.pods, uid)
	delete(m.reusable, uid)
}
