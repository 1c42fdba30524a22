package eviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
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

// Pods are those of the node.
type Pods interface {
	Evictable() []*v1.Pod
	Has(uid types.UID) bool
	// Evict ends the pod within grace seconds.
	Evict(pod *v1.Pod, message string, grace int64)
}

// Config is what a Manager is made from.
type Config struct {
	Configuration *kubeletconfig.KubeletConfiguration
	NodeName      string
	Machine       node.Machine
	Pods          Pods
	Sources       Sources
	// FreeImages removes unused images until it has freed as many bytes as
	// are wanted, and returns how many it has.
	FreeImages func(ctx context.Context, want int64) int64
	Changed    func() // called when Conditions has changed
	Recorder   record.EventRecorder
	Metrics    prometheus.Registerer
}

// Manager evicts pods when the machine runs short of something, or when they
// use more disk than they may.
type Manager struct {
	config     Config
	thresholds []Threshold
	evictions  *prometheus.CounterVec // by eviction_signal

	mu         sync.Mutex // guards conditions
	conditions []v1.NodeConditionType
}

// New returns a Manager, or an error for thresholds that are none.
func New(c Config) (*Manager, error) {
	thresholds, err := Thresholds(c.Configuration)
	if err != nil {
		return nil, err
	}
	m := &Manager{config: c, thresholds: thresholds, evictions: prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "kubelet_evictions", Help: "[ALPHA] Cumulative number of pod evictions by eviction signal"}, []string{"eviction_signal"})}
	c.Metrics.MustRegister(m.evictions)
	return m, nil
}

// Thresholds are what must be left of the machine's resources.
func Thresholds(c *kubeletconfig.KubeletConfiguration) ([]Threshold, error) {
	hard, err := Parse(c.EvictionHard, nil)
	if err != nil {
		return nil, fmt.Errorf("--eviction-hard: %w", err)
	}
	grace := c.EvictionSoftGracePeriod
	if grace == nil {
		grace = map[string]string{}
	}
	soft, err := Parse(c.EvictionSoft, grace)
	if err != nil {
		return nil, fmt.Errorf("--eviction-soft and --eviction-soft-grace-period: %w", err)
	}
	all, err := Reclaim(append(hard, soft...), c.EvictionMinimumReclaim)
	if err != nil {
		return nil, fmt.Errorf("evictionMinimumReclaim: %w", err)
	}
	return all, nil
}

// Conditions are the node's conditions that its shortages make.
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

// Run watches the machine's resources until ctx ends. Counting what pods have
// made can take long, so that it is apart from what cannot wait.
func (m *Manager) Run(ctx context.Context) {
	var storage supervise.WaitGroup
	defer storage.Wait()
	storage.Go(ctx, func() {
		enforce := func() { supervise.Contain(ctx, "storage", func() { m.enforceStorage(ctx) }) }
		enforce()
		supervise.Every(ctx, period, enforce)
	})
	state := &State{Transition: m.config.Configuration.EvictionPressureTransitionPeriod.Duration}
	m.look(ctx, state)
	supervise.Every(ctx, period, func() { m.look(ctx, state) })
}

// look compares what is left with the thresholds.
func (m *Manager) look(ctx context.Context, state *State) {
	free, err := m.config.Machine.Free()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The machine's free resources cannot be read")
		return
	}
	now := time.Now()
	due := state.Look(state.Passed(m.thresholds, free), now)
	var conditions []v1.NodeConditionType
	for _, c := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		if state.Under(c, now) {
			conditions = append(conditions, c)
		}
	}
	m.setConditions(conditions)
	if due != nil {
		supervise.Contain(ctx, "evictions", func() { m.relieve(ctx, due, free) })
	}
}

// relieve frees what is short: images first where disk is, else one pod.
func (m *Manager) relieve(ctx context.Context, t *Threshold, free node.Free) {
	name := Resource(t.Signal)
	m.config.Recorder.Eventf(node.Reference(m.config.NodeName), v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", name)
	if name == v1.ResourceEphemeralStorage || name == Inodes {
		if freed := m.config.FreeImages(ctx, 1<<62); freed > 0 {
			return
		}
	}
	usage := m.config.Sources.read(ctx)
	var candidates []Candidate
	for _, p := range m.config.Pods.Evictable() {
		candidates = append(candidates, usage.candidate(p, name))
	}
	ranked := Rank(candidates, name)
	if len(ranked) == 0 {
		return
	}
	grace := int64(1)
	if t.Grace > 0 {
		grace = min(pod.GracePeriod(ranked[0].Pod, nil), max(int64(m.config.Configuration.EvictionMaxPodGracePeriod), 1))
	}
	message, annotations := Message(t, free, ranked[0])
	m.evict(ranked[0].Pod, t.Signal, message, annotations, grace)
}

func (m *Manager) evict(p *v1.Pod, signal, message string, annotations map[string]string, grace int64) {
	if !m.config.Pods.Has(p.UID) {
		return
	}
	m.evictions.WithLabelValues(signal).Inc()
	m.config.Recorder.AnnotatedEventf(pod.Reference(p), annotations, v1.EventTypeWarning, "Evicted", "%s", message)
	m.config.Pods.Evict(p, message, grace)
}

// enforceStorage evicts pods that take up more of the disk than their limits
// or those of their volumes allow.
func (m *Manager) enforceStorage(ctx context.Context) {
	if !*m.config.Configuration.LocalStorageCapacityIsolation {
		return
	}
	limited := slices.DeleteFunc(m.config.Pods.Evictable(), func(p *v1.Pod) bool { return !Limited(p) })
	if len(limited) == 0 {
		return
	}
	usage := m.config.Sources.read(ctx)
	for _, p := range limited {
		if signal, message := Exceeds(p, usage.disk(p)); message != "" {
			m.evict(p, signal, message, nil, 1)
		}
	}
}
