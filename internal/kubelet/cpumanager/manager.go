// Package cpumanager gives containers CPUs of their own. It corresponds to upstream's
// CPU manager.
//
//	all CPUs ─┬─ shared pool: the containers that have no CPUs of their own;
//	          │  the reserved CPUs stay in it, unless the reservation is strict
//	          └─ exclusive: integer CPU requests of guaranteed pods
//
// With the policy none the kernel places containers on any CPU. With the policy
// static, containers of the shared pool are moved when the pool changes.
package cpumanager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/allocatable"
	"github.com/coracle-io/coracle/internal/kubelet/cpumanager/state"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/statefile"
	"github.com/coracle-io/coracle/internal/kubelet/topology"
	"github.com/coracle-io/coracle/internal/kubelet/topologymanager"
	"github.com/coracle-io/coracle/internal/supervise"
)

const maxState = 16 << 20

// Container is a container that runs.
type Container struct {
	Pod  types.UID
	Name string
	ID   string
}

// Config configures a Manager.
type Config struct {
	Configuration *kubeletconfig.KubeletConfiguration
	Features      *feature.Set
	Machine       *topology.Machine // not needed by the policy none
	StateFile     string
	Files         files.FS
	// Update changes the CPUs of a container that runs.
	Update     func(ctx context.Context, id, cpus string) error
	Containers func() []Container
	// SourcesReady reports whether all pods are known. Active returns the pods
	// whose containers may run.
	SourcesReady func() bool
	Active       func() []*v1.Pod
	Metrics      prometheus.Registerer
}

// Manager is the CPU manager. Its methods may be called from any goroutine.
type Manager struct {
	config   Config
	policy   string
	options  Options
	file     statefile.File[state.CPUManagerCheckpoint]
	reserved cpuset.CPUSet
	changes  chan struct{}
	metrics  metrics

	mu       sync.Mutex // guards what follows
	shared   cpuset.CPUSet
	assigned map[types.UID]map[string]cpuset.CPUSet
	reusable map[types.UID]cpuset.CPUSet
}

// New validates the configuration and returns a manager that has not assigned
// anything.
func New(c Config) (*Manager, error) {
	policy := c.Configuration.CPUManagerPolicy
	options, err := ParseOptions(policy, c.Configuration.CPUManagerPolicyOptions, c.Features)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		config: c, policy: policy, options: options, changes: make(chan struct{}, 1),
		file: statefile.File[state.CPUManagerCheckpoint]{
			Manager: "CPU manager", Path: c.StateFile, MaxSize: maxState, Files: c.Files, Unmarshal: state.Unmarshal, Dispensable: policy == None,
		},
		assigned: map[types.UID]map[string]cpuset.CPUSet{}, reusable: map[types.UID]cpuset.CPUSet{},
		metrics: newMetrics(),
	}
	if policy == Static {
		if err := m.prepare(); err != nil {
			return nil, err
		}
	}
	if c.Metrics != nil {
		m.register(c.Metrics)
	}
	return m, nil
}

// prepare checks the machine against the options, and reserves the CPUs of the system.
func (m *Manager) prepare() error {
	c := &m.config
	if m.options.AlignBySocket {
		if c.Configuration.TopologyManagerPolicy == topologymanager.SingleNUMANode {
			return fmt.Errorf("topologyManagerPolicy %s is incompatible with the option align-by-socket of cpuManagerPolicy", topologymanager.SingleNUMANode)
		}
		if count(c.Machine, socket) > len(c.Machine.Nodes) {
			return errors.New("align by socket is not compatible with hardware where number of sockets are more than number of NUMA")
		}
	}
	return m.reserve()
}

// reserve chooses the CPUs of the system: reservedSystemCPUs, or as many as
// systemReserved and kubeReserved have, rounded up.
func (m *Manager) reserve() (err error) {
	all := m.config.Machine.All()
	if m.reserved, err = topology.ParseCPUs(m.config.Configuration.ReservedSystemCPUs); err != nil {
		return err
	}
	if !m.reserved.IsEmpty() {
		if !m.reserved.IsSubsetOf(all) {
			return fmt.Errorf("[cpumanager] reservedSystemCPUs %s are not CPUs of this machine, which has %s", m.reserved, all)
		}
		return nil
	}
	reserved, err := allocatable.SystemReserved(m.config.Configuration)
	if err != nil {
		return err
	}
	q, ok := reserved[v1.ResourceCPU]
	if !ok || q.Sign() <= 0 {
		return errors.New("[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
	}
	n := int(min(q.Value(), int64(all.Size())+1)) // Value rounds up
	if m.reserved, err = m.choose(all, n); err != nil {
		return fmt.Errorf("[cpumanager] unable to reserve the required amount of CPUs: %w", err)
	}
	return nil
}

// choose returns n of the free CPUs.
func (m *Manager) choose(free cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
	o := m.options
	if o.DistributeAcrossNUMA {
		size := 1
		if o.FullPCPUsOnly {
			size = threads(m.config.Machine)
		}
		return distributed(m.config.Machine, free, n, size, o)
	}
	return packed(m.config.Machine, free, n, o)
}

// Recover reads what an earlier kubelet has assigned. A file that is damaged, of
// another policy or of another machine is an error: running containers may have
// CPUs that nobody knows of. A file that is empty counts as none.
func (m *Manager) Recover() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.file.Restore(m.restore); err != nil {
		return err
	}
	return m.save()
}

// pool returns the CPUs that are shared while none is assigned.
func (m *Manager) pool() cpuset.CPUSet {
	if m.options.StrictReservation {
		return m.config.Machine.All().Difference(m.reserved)
	}
	return m.config.Machine.All()
}

// restore takes over the state of an earlier kubelet, nil if there is none. m.mu
// is held.
func (m *Manager) restore(kept *state.CPUManagerCheckpoint) (err error) {
	if kept == nil {
		if m.policy == Static {
			m.shared = m.pool()
		}
		return nil
	}
	if kept.PolicyName != m.policy {
		return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", m.policy, kept.PolicyName)
	}
	if m.shared, err = topology.ParseCPUs(kept.DefaultCPUSet); err != nil {
		return fmt.Errorf("could not parse default cpu set %q: %w", kept.DefaultCPUSet, err)
	}
	for uid, containers := range kept.Entries {
		for name, text := range containers {
			set, err := topology.ParseCPUs(text)
			if err != nil {
				return fmt.Errorf("could not parse cpuset %q for container %q in pod %q: %w", text, name, uid, err)
			}
			m.set(types.UID(uid), name, set)
		}
	}
	if m.policy == Static {
		return m.validate()
	}
	return nil
}

// validate checks the restored state against the machine. m.mu is held.
func (m *Manager) validate() error {
	if m.shared.IsEmpty() && len(m.assigned) == 0 {
		m.shared = m.pool()
		return nil
	}
	strict := m.options.StrictReservation
	if m.shared.IsEmpty() && !strict { // with a strict reservation, containers can have all others for themselves
		return errors.New("default cpuset cannot be empty")
	}
	if both := m.reserved.Intersection(m.shared); strict && !both.IsEmpty() {
		return fmt.Errorf("some of strictly reserved cpus: %q are present in defaultCpuSet: %q", both, m.shared)
	} else if !strict && !both.Equals(m.reserved) {
		return fmt.Errorf("not all reserved cpus: %q are present in defaultCpuSet: %q", m.reserved, m.shared)
	}
	known := m.shared
	for uid, containers := range m.assigned {
		for name, set := range containers {
			if !set.Intersection(m.shared).IsEmpty() {
				return fmt.Errorf("pod: %s, container: %s cpuset: %q overlaps with default cpuset %q", uid, name, set, m.shared)
			}
			known = known.Union(set)
		}
	}
	if want := m.pool(); !known.Equals(want) {
		return fmt.Errorf("current set of available CPUs %q doesn't match with CPUs in state %q", want, known)
	}
	return nil
}

// set records the CPUs of a container. m.mu is held.
func (m *Manager) set(uid types.UID, name string, cpus cpuset.CPUSet) {
	if m.assigned[uid] == nil {
		m.assigned[uid] = map[string]cpuset.CPUSet{}
	}
	m.assigned[uid][name] = cpus
}

// save writes the state. m.mu is held.
func (m *Manager) save() error {
	kept := state.CPUManagerCheckpoint{PolicyName: m.policy, DefaultCPUSet: m.shared.String(), Entries: map[string]map[string]string{}}
	for uid, containers := range m.assigned {
		of := map[string]string{}
		for name, set := range containers {
			of[name] = set.String()
		}
		kept.Entries[string(uid)] = of
	}
	return m.file.Save(&kept)
}

// Run moves the containers of the shared pool when it changes, and corrects the
// CPUs of all containers in every period, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	if m.policy != Static {
		return
	}
	ticker := time.NewTicker(m.config.Configuration.CPUManagerReconcilePeriod.Duration)
	defer ticker.Stop()
	applied := map[string]string{}
	for {
		supervise.Contain(ctx, "CPU manager", func() { m.reconcile(ctx, applied) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-m.changes:
		}
	}
}

// reconcile applies their CPUs to the containers that run. applied holds the
// CPUs that were applied, by the id of the container.
func (m *Manager) reconcile(ctx context.Context, applied map[string]string) {
	m.releaseInactive()
	seen := map[string]bool{}
	for _, c := range m.config.Containers() {
		seen[c.ID] = true
		cpus := m.CPUs(c.Pod, c.Name).String()
		if cpus == "" || applied[c.ID] == cpus {
			continue
		}
		if err := m.config.Update(ctx, c.ID, cpus); err != nil {
			supervise.LogFailure(ctx, "CPU manager", err, "Changing the CPUs of a container failed, will try again", "container", c.Name, "podUID", c.Pod)
			continue
		}
		applied[c.ID] = cpus
	}
	for id := range applied {
		if !seen[id] {
			delete(applied, id)
		}
	}
}

// wake makes Run look at the containers now.
func (m *Manager) wake() {
	select {
	case m.changes <- struct{}{}:
	default:
	}
}

// CPUs returns the CPUs on which a container runs, none for any.
func (m *Manager) CPUs(uid types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	if set, ok := m.assigned[uid][container]; ok {
		return set
	}
	return m.shared
}

// Exclusive returns the CPUs that a container has for itself.
func (m *Manager) Exclusive(uid types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.assigned[uid][container]
}

// Allocatable returns the CPUs that containers can have for themselves.
func (m *Manager) Allocatable() cpuset.CPUSet {
	if m.policy != Static {
		return cpuset.New()
	}
	return m.config.Machine.All().Difference(m.reserved)
}

// Release frees the CPUs of a pod.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(uid)
}

// releaseInactive frees the CPUs of pods that are gone.
func (m *Manager) releaseInactive() {
	if m.config.SourcesReady() {
		topologymanager.ReleaseInactive(&m.mu, m.assigned, m.config.Active, m.release)
	}
}

// release frees the CPUs of a pod. m.mu is held.
func (m *Manager) release(uid types.UID) {
	delete(m.reusable, uid)
	if len(m.assigned[uid]) == 0 {
		return
	}
	for _, set := range m.assigned[uid] {
		m.shared = m.shared.Union(set)
	}
	delete(m.assigned, uid)
	if err := m.save(); err != nil { // the next assignment tries again
		supervise.LogFailure(context.Background(), "CPU manager", err, "The CPUs of a pod that has ended are not free for the next kubelet", "podUID", uid)
	}
	m.wake()
}
