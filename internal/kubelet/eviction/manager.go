package eviction

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
	"github.com/coracle-io/coracle/internal/supervise"
)

const period = 10 * time.Second

// podCleanupTimeout is how long an evicted pod may take to end before the next
// one is evicted, as in upstream.
const podCleanupTimeout = 30 * time.Second

// Pods are the pods of the node.
type Pods interface {
	// Evictable returns the pods that an eviction within grace seconds would end, or
	// end sooner: those that are not critical, or with critical all of the API server.
	Evictable(grace int64, critical bool) []*v1.Pod
	Has(uid types.UID) bool
	// Freed reports whether nothing of the pod runs any more, and what it wrote is
	// removed.
	Freed(uid types.UID) bool
	// Evict ends the pod within grace seconds, or sooner if it is ending. disrupted says
	// that it ends for the sake of others, not for a limit of its own.
	Evict(pod *v1.Pod, message string, grace int64, disrupted bool)
}

// Config configures a Manager.
type Config struct {
	Configuration *kubeletconfig.KubeletConfiguration
	NodeName      string
	Machine       node.Machine
	Pods          Pods
	Sources       Sources
	// FreeContainers removes containers that have ended, and returns how many pods
	// and containers that were.
	FreeContainers func(ctx context.Context) int
	// FreeImages removes unused images until it has freed the wanted number of
	// bytes, and returns the number that it freed.
	FreeImages func(ctx context.Context, want int64) int64
	// EndPulls ends the pulls of images that are in progress, and returns how many.
	EndPulls func() int
	// FileSystems returns what is free on the file systems of the runtime's images and of
	// the writable layers of containers.
	FileSystems func(ctx context.Context) (images, containers node.FileSystem, err error)
	// PodsMemory returns what all pods together have left of their memory, and how
	// much they may have, in bytes; 0 if they have no limit.
	PodsMemory func() (left, limit int64, err error)

	Own      Own
	Changed  func() // called after Conditions has changed
	Recorder record.EventRecorder
	Metrics  prometheus.Registerer
}

// Manager evicts pods when the machine runs short of a resource, or when they
// use more disk than their limits.
type Manager struct {
	config     Config
	thresholds []Threshold
	separate   []Threshold // with those of the writable layers, see thresholdsFor
	counter    *counter
	evictions  *prometheus.CounterVec // by eviction_signal

	freeing atomic.Bool         // disk is being freed
	freed   atomic.Bool         // the last observation found disk that no pod needed
	ended   atomic.Bool         // the last observation has ended pulls
	disk    supervise.WaitGroup // of freeing
	ownAt   time.Time           // when look has evicted a pod for the kubelet's own memory; look alone uses it
	mu      sync.Mutex          // guards what follows
	// The pod that was evicted last for a threshold, within how many seconds, and when.
	evicted       types.UID
	evictedWithin int64
	evictedAt     time.Time
	conditions    []v1.NodeConditionType
}

// New returns a Manager, or an error for invalid thresholds.
func New(c Config) (*Manager, error) {
	thresholds, err := Thresholds(c.Configuration)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		config: c, thresholds: thresholds, separate: withContainerFs(thresholds), counter: newCounter(c.Sources.Files),
		evictions: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "kubelet_evictions", Help: "[ALPHA] Cumulative number of pod evictions by eviction signal"}, []string{"eviction_signal"}),
	}
	c.Metrics.MustRegister(m.evictions)
	return m, nil
}

// Thresholds returns the eviction thresholds of a configuration, the hard ones first.
func Thresholds(c *kubeletconfig.KubeletConfiguration) ([]Threshold, error) {
	hard, err := parseThresholds(c.EvictionHard, nil)
	if err != nil {
		return nil, fmt.Errorf("--eviction-hard: %w", err)
	}
	grace := c.EvictionSoftGracePeriod
	if grace == nil {
		grace = map[string]string{}
	}
	soft, err := parseThresholds(c.EvictionSoft, grace)
	if err != nil {
		return nil, fmt.Errorf("--eviction-soft and --eviction-soft-grace-period: %w", err)
	}
	all, err := withMinimumReclaim(append(hard, soft...), c.EvictionMinimumReclaim)
	if err != nil {
		return nil, fmt.Errorf("evictionMinimumReclaim: %w", err)
	}
	if slices.Contains(c.EnforceNodeAllocatable, "pods") {
		all = slices.Insert(all, len(hard), ofPods(all)...)
	}
	return all, nil
}

// Conditions returns the pressure conditions of the node that are true.
func (m *Manager) Conditions() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conditions
}

func (m *Manager) setConditions(conditions []v1.NodeConditionType) {
	m.mu.Lock()
	changed := !slices.Equal(m.conditions, conditions)
	m.conditions = conditions
	m.mu.Unlock()
	if changed {
		m.config.Changed()
	}
}

// Run checks the thresholds and the disk usage of pods until ctx ends. Each has
// a goroutine, and so has each pod whose disk usage is counted, because that can take
// long.
func (m *Manager) Run(ctx context.Context) {
	if settings := ignored(m.config.Configuration); len(settings) > 0 {
		klog.FromContext(ctx).Info("The thresholds of containerfs are those of nodefs or imagefs, ignoring others", "settings", settings)
	}
	var storage, checks supervise.WaitGroup
	defer checks.Wait()
	defer storage.Wait()
	storage.Go(ctx, func() {
		supervise.Repeat(ctx, period, func() { supervise.Contain(ctx, "storage", func() { m.enforceStorage(ctx, &checks) }) })
	})
	defer m.disk.Wait()
	state := &thresholdState{Transition: m.config.Configuration.EvictionPressureTransitionPeriod.Duration}
	supervise.Repeat(ctx, period, func() { m.look(ctx, state) })
}

// look compares the free resources with the thresholds, and the kubelet's own memory
// with its limit.
func (m *Manager) look(ctx context.Context, state *thresholdState) {
	own := m.config.Own.Shortage()
	supervise.Report(ctx, "Memory", own)
	if own != nil {
		m.relieveOwn(ctx, own)
	}
	free, err := m.config.Machine.Free()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The machine's free resources cannot be read")
		return
	}
	if free.Images, free.Containers, err = m.config.FileSystems(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("The free space for images cannot be read", "err", err)
	}
	if free.PodsMemoryBytes, free.PodsMemoryTotal, err = m.config.PodsMemory(); err != nil {
		klog.FromContext(ctx).V(2).Info("The memory that all pods use cannot be read", "err", err)
	}
	now := time.Now()
	due := state.observe(state.thresholdsMet(m.thresholdsFor(&free), free), now)
	if own != nil {
		state.note(v1.NodeMemoryPressure, now)
	}
	var conditions []v1.NodeConditionType
	for _, c := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		if state.hasNodeCondition(c, now) {
			conditions = append(conditions, c)
		}
	}
	m.setConditions(conditions)
	if due == nil {
		m.freed.Store(false)
		m.ended.Store(false)
		return
	}
	relieve := func() { supervise.Contain(ctx, "evictions", func() { m.relieve(ctx, due, free) }) }
	if name := resourceOf(due.Signal); name != v1.ResourceEphemeralStorage && name != inodes {
		relieve()
		return
	}
	// Removing images and counting the files of pods can take minutes. Another
	// goroutine does it, so that memory is watched all the time.
	if !m.freeing.Swap(true) {
		m.disk.Go(ctx, func() {
			defer m.freeing.Store(false)
			relieve()
		})
	}
}

// relieve reclaims a resource. For disk it first removes what no pod needs: dead
// containers and then unused images, which they may have used, as far as they are on the
// file system that is short. If there is any, the next observation shows
// whether that was enough. Then, or if there is none, it does the same with pulls of images
// that are in progress, and after that, it evicts one pod. It gives the pod that was evicted
// before time to end, unless a hard threshold is met now and that pod has more time than one
// leaves.
func (m *Manager) relieve(ctx context.Context, t *Threshold, free node.Free) {
	name, where := resourceOf(t.Signal), areaOf(t.Signal, &free)
	m.config.Recorder.Eventf(node.Reference(m.config.NodeName), v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", name)
	if name == v1.ResourceEphemeralStorage || name == inodes {
		freed := (where.node || where.layers) && m.config.FreeContainers(ctx) > 0
		if where.images {
			freed = m.config.FreeImages(ctx, 1<<62) > 0 || freed
		}
		if before := m.freed.Swap(freed); freed && !before {
			return
		}
		ended := where.images && m.config.EndPulls() > 0
		if before := m.ended.Swap(ended); ended && !before {
			return
		}
	}
	if m.ending(m.longest(t)) {
		return
	}
	usage := m.usage(ctx)
	ranked := rank(usage.candidates(ctx, m.config.Pods.Evictable(m.longest(t), false), name, where), name)
	if len(ranked) == 0 || ctx.Err() != nil { // then not all was counted
		return
	}
	if name == v1.ResourceEphemeralStorage && where != everywhere() {
		// The message names all that containers use, as in upstream.
		ranked[0].Containers = usage.disk(ctx, ranked[0].Pod, everywhere(), tooLong).Containers
	}
	message, annotations := evictionMessage(t, free, ranked[0])
	grace := m.gracePeriod(t, ranked[0].Pod)
	m.note(ranked[0].Pod, grace)
	m.evict(ranked[0].Pod, eviction{signal: t.Signal, message: message, annotations: annotations, grace: grace, disrupted: true})
}

// note records that a pod is evicted now.
func (m *Manager) note(p *v1.Pod, grace int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evicted, m.evictedWithin, m.evictedAt = p.UID, grace, time.Now()
}

// candidates returns pods with their usage of a resource. The files of several pods
// are counted at a time.
func (u *usage) candidates(ctx context.Context, pods []*v1.Pod, name v1.ResourceName, where area) []candidate {
	all := make([]candidate, len(pods))
	errs := supervise.ForEach(len(pods), func(i int) error {
		all[i].Pod = pods[i]
		all[i] = u.candidate(ctx, pods[i], name, where)
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		supervise.LogFailure(ctx, "evictions", err, "The usage of a pod cannot be found out, going on without it")
	}
	return all
}

// immediateGracePeriod is how many seconds pods get to end that are evicted for
// a hard threshold or a limit.
const immediateGracePeriod = 1

// gracePeriod returns how many seconds a pod gets to end that is evicted for a
// threshold.
func (m *Manager) gracePeriod(t *Threshold, p *v1.Pod) int64 {
	if t.Grace == 0 {
		return immediateGracePeriod
	}
	return min(pod.GracePeriod(p, nil), m.longest(t))
}

// longest returns the most seconds that a pod gets to end that is evicted for a
// threshold. If evictionMaxPodGracePeriod is negative, a soft threshold leaves
// the pod its own grace period.
func (m *Manager) longest(t *Threshold) int64 {
	switch most := int64(m.config.Configuration.EvictionMaxPodGracePeriod); {
	case t.Grace == 0:
		return immediateGracePeriod
	case most < 0:
		return math.MaxInt64
	default:
		return max(most, immediateGracePeriod)
	}
}

// ending reports whether the pod that was evicted before still has time to end, no
// more than most seconds, and to give back what it had.
func (m *Manager) ending(most int64) bool {
	m.mu.Lock()
	evicted, within, at := m.evicted, m.evictedWithin, m.evictedAt
	m.mu.Unlock()
	return evicted != "" && within <= most && !m.config.Pods.Freed(evicted) && time.Since(at) < podCleanupTimeout
}

// eviction is how and why a pod is evicted.
type eviction struct {
	signal, message string
	annotations     map[string]string // of the event
	grace           int64             // in seconds
	disrupted       bool              // for the sake of others
}

func (m *Manager) evict(p *v1.Pod, e eviction) {
	if !m.config.Pods.Has(p.UID) {
		return
	}
	m.evictions.WithLabelValues(e.signal).Inc()
	m.config.Recorder.AnnotatedEventf(pod.Reference(p), e.annotations, v1.EventTypeWarning, "Evicted", "%s", e.message)
	m.config.Pods.Evict(p, e.message, e.grace, e.disrupted)
}

// enforceStorage evicts pods that use more disk than their own limits or those
// of their volumes allow. It counts each pod that is due in a goroutine of checks.
func (m *Manager) enforceStorage(ctx context.Context, checks *supervise.WaitGroup) {
	m.counter.forget()
	if !*m.config.Configuration.LocalStorageCapacityIsolation {
		return
	}
	bounded := slices.DeleteFunc(m.config.Pods.Evictable(immediateGracePeriod, false), func(p *v1.Pod) bool { return !limited(p) })
	if len(bounded) == 0 {
		return
	}
	usage := m.usage(ctx)
	usage.apart = m.layersApart(ctx)
	for _, p := range bounded {
		if !m.counter.begin(p.UID) {
			continue
		}
		checks.Go(ctx, func() {
			took := time.Duration(0)
			defer func() { m.counter.end(p.UID, took) }()
			supervise.Contain(ctx, "storage", func() { took = m.enforceLimits(ctx, usage, p) })
		})
	}
}

// layersApart reports whether writable layers are not on the node's file system, or may
// not be.
func (m *Manager) layersApart(ctx context.Context) bool {
	free, err := m.config.Machine.Free()
	if err == nil {
		free.Images, free.Containers, err = m.config.FileSystems(ctx)
	}
	return err != nil || !areaOf(nodeFsAvailable, &free).layers
}

var errExceeded = errors.New("a limit is exceeded already")

// enforceLimits evicts a pod that uses more disk than a limit allows. It returns how
// long the pod's files were counted.
func (m *Manager) enforceLimits(ctx context.Context, usage *usage, p *v1.Pod) time.Duration {
	use := usage.disk(ctx, p, everywhere(), func(soFar *diskUsage) error {
		if _, message := exceeds(p, soFar); message != "" {
			return errExceeded
		}
		return nil
	})
	if signal, message := exceeds(p, use); message != "" && ctx.Err() == nil {
		m.evict(p, eviction{signal: signal, message: message, grace: immediateGracePeriod})
	}
	return use.took
}
