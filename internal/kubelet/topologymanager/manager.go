// Package topologymanager makes the devices, CPUs and memory of a container come
// from the same NUMA nodes. It corresponds to upstream's topology manager.
//
//	provider (devices) ─► hints ┐
//	provider (CPUs)    ─► hints ┼─► merge by the policy ─► affinity ─► Allocate of each provider
//	provider (memory)  ─► hints ┘                     └─► TopologyAffinityError
//
// A provider says which sets of NUMA nodes could serve a container, or a whole
// pod. The policy chooses one set, or rejects the pod. Then each provider
// allocates from that set.
package topologymanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/topology"
	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/podquery"
)

// The policies.
const (
	None           = kubeletconfig.NoneTopologyManagerPolicy
	BestEffort     = kubeletconfig.BestEffortTopologyManagerPolicy
	Restricted     = kubeletconfig.RestrictedTopologyManagerPolicy
	SingleNUMANode = kubeletconfig.SingleNumaNodeTopologyManagerPolicy
)

// Request asks for the resources of a container of a pod.
type Request struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Init means that the container ends before the ones after it start. Its
	// resources may be allocated to later containers again.
	Init bool
	// Running reports that the container runs, or is an init container that has
	// ended before one that runs. An earlier kubelet has allocated its resources.
	Running bool
	// Affinity is the choice of the policy.
	Affinity Hint
}

// Provider allocates resources that belong to NUMA nodes.
type Provider interface {
	// Needs reports whether a container of the pod needs any of the resources.
	Needs(pod *v1.Pod) bool
	// Hints returns the hints for a container.
	Hints(r Request) Hints
	// PodHints returns the hints for all containers of a pod together.
	PodHints(pod *v1.Pod) Hints
	// Allocate allocates what the container needs. Allocate does not change
	// earlier allocations of the container.
	Allocate(ctx context.Context, r Request) error
	// Release frees what the pod has.
	Release(uid types.UID)
}

// AdmissionError is an error with the reason with which a pod is rejected.
type AdmissionError struct{ Reason, Message string }

func (e *AdmissionError) Error() string { return e.Message }

// affinityError returns the error with which a policy rejects a pod.
func affinityError() *AdmissionError {
	return &AdmissionError{"TopologyAffinityError", "Resources cannot be allocated with Topology locality"}
}

// Rejection returns the reason and the message of a pod whose admission failed.
func Rejection(err error) (reason, message string) {
	var known *AdmissionError
	if errors.As(err, &known) {
		return known.Reason, known.Message
	}
	return "UnexpectedAdmissionError", fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)
}

// Manager allocates the resources of pods by its providers.
type Manager struct {
	policy    policy
	podScope  bool
	providers []Provider
	metrics   metrics

	allocating chan struct{} // holds the one turn to allocate
}

type metrics struct {
	requests, failures prometheus.Counter
	duration           prometheus.Histogram
	containers, pods   Alignment // with the policy single-numa-node
}

func newMetrics() metrics {
	return metrics{
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_topology_manager_admission_requests_total", Help: "The number of admission requests where resources have to be aligned."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_topology_manager_admission_errors_total", Help: "The number of admission request failures where resources could not be aligned."}),
		duration: nativehistogram.New(prometheus.HistogramOpts{
			Name: "kubelet_topology_manager_admission_duration_ms", Help: "Duration in milliseconds to serve a pod admission request.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 15)}),
		containers: NewAlignment("container", "numa_node"), pods: NewAlignment("pod", "numa_node"),
	}
}

// New returns a manager by the policy, the scope and the options of a
// configuration. The machine may be nil if the policy is none.
func New(c *kubeletconfig.KubeletConfiguration, machine *topology.Machine, r prometheus.Registerer, providers ...Provider) (*Manager, error) {
	options, err := ParseOptions(c.TopologyManagerPolicyOptions)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		policy: policy{name: c.TopologyManagerPolicy}, podScope: c.TopologyManagerScope == kubeletconfig.PodTopologyManagerScope,
		providers: providers, allocating: make(chan struct{}, 1),
		metrics: newMetrics(),
	}
	if r != nil {
		r.MustRegister(m.metrics.requests, m.metrics.failures, m.metrics.duration)
	}
	if m.policy.name == None || machine == nil {
		m.policy.name = None
		return m, nil
	}
	if r != nil {
		r.MustRegister(m.metrics.containers.Done, m.metrics.containers.Failed, m.metrics.pods.Done, m.metrics.pods.Failed)
	}
	m.policy.nodes = machine.NodeIDs()
	if len(m.policy.nodes) > options.MaxAllowableNUMANodes {
		return nil, fmt.Errorf("unsupported on machines with more than %d NUMA Nodes", options.MaxAllowableNUMANodes)
	}
	if err := CheckNodes(m.policy.nodes); err != nil {
		return nil, fmt.Errorf("topologyManagerPolicy %s: %w", m.policy.name, err)
	}
	if options.PreferClosestNUMANodes {
		if m.policy.distances, err = distances(machine); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// maxNodes is how many NUMA nodes a machine may have at most.
const maxNodes = 20

// CheckNodes returns an error for NUMA nodes whose sets are too many to look at.
func CheckNodes(nodes []int) error {
	if len(nodes) > maxNodes {
		return fmt.Errorf("this machine has %d NUMA nodes, more than %d", len(nodes), maxNodes)
	}
	if slices.ContainsFunc(nodes, func(id int) bool { return id > MaxNode }) {
		return fmt.Errorf("a NUMA node of this machine has an id above %d", MaxNode)
	}
	return nil
}

func distances(machine *topology.Machine) (func(from, to int) int, error) {
	ids := machine.NodeIDs()
	table := map[[2]int]int{}
	for _, node := range machine.Nodes {
		if len(node.Distances) != len(ids) {
			return nil, fmt.Errorf("error getting NUMA distances from cadvisor: node %d has %d of %d", node.ID, len(node.Distances), len(ids))
		}
		for i, d := range node.Distances {
			table[[2]int{node.ID, ids[i]}] = d
		}
	}
	return func(from, to int) int { return table[[2]int{from, to}] }, nil
}

// Options are the options of the policies.
type Options struct {
	PreferClosestNUMANodes bool
	MaxAllowableNUMANodes  int
}

// defaultMaxNodes is how many NUMA nodes a machine may have by default. The
// number of sets of nodes doubles with each.
const defaultMaxNodes = 8

// ParseOptions reads topologyManagerPolicyOptions.
func ParseOptions(values map[string]string) (Options, error) {
	o := Options{MaxAllowableNUMANodes: defaultMaxNodes}
	for name, value := range values {
		switch name {
		case "prefer-closest-numa-nodes":
			on, err := strconv.ParseBool(value)
			if err != nil {
				return o, fmt.Errorf("bad value for option %q: %w", name, err)
			}
			o.PreferClosestNUMANodes = on
		case "max-allowable-numa-nodes":
			n, err := strconv.Atoi(value)
			if err != nil {
				return o, fmt.Errorf("unable to convert policy option to integer %q: %w", name, err)
			}
			if n < defaultMaxNodes {
				return o, fmt.Errorf("the minimum value of %q should not be less than %d", name, defaultMaxNodes)
			}
			o.MaxAllowableNUMANodes = min(n, MaxNode+1)
		default:
			return o, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
	}
	return o, nil
}

// Admit allocates what the containers of a pod need. running reports which of
// them run. After an error a pod of which nothing runs has nothing; another one
// keeps what it has until it has ended. Admit waits for its turn until ctx ends. A
// pod that needs nothing does not wait for others, whose device plugins may hang.
func (m *Manager) Admit(ctx context.Context, pod *v1.Pod, running func(container string) bool) (err error) {
	if m.policy.name != None {
		m.metrics.requests.Inc()
	}
	if !slices.ContainsFunc(m.providers, func(p Provider) bool { return p.Needs(pod) }) {
		return nil // there is nothing to align
	}
	select {
	case m.allocating <- struct{}{}:
		defer func() { <-m.allocating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.policy.name != None {
		began := time.Now()
		defer func() {
			m.metrics.duration.Observe(float64(time.Since(began).Microseconds()) / 1000)
			if err != nil {
				m.metrics.failures.Inc()
			}
		}()
	}
	last := lastRunning(pod, running)
	defer func() {
		if err != nil && last < 0 {
			m.Release(pod.UID)
		}
	}()
	var ofPod Hint
	if m.podScope && m.policy.name != None {
		ok := false
		if ofPod, ok = m.policy.merge(m.hints(func(p Provider) Hints { return p.PodHints(pod) })); !ok {
			m.aligned(m.metrics.pods.Failed)
			return affinityError()
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		r := Request{Pod: pod, Container: c, Init: !podquery.IsSidecar(c), Running: running(c.Name), Affinity: ofPod}
		r.Running = r.Running || r.Init && i < last
		if err := m.allocate(ctx, r); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if err := m.allocate(ctx, Request{Pod: pod, Container: c, Running: running(c.Name), Affinity: ofPod}); err != nil {
			return err
		}
	}
	if m.podScope {
		m.aligned(m.metrics.pods.Done)
	}
	return nil
}

// aligned counts in a counter if the policy is the one that gives all resources of one
// NUMA node.
func (m *Manager) aligned(counter prometheus.Counter) {
	if m.policy.name == SingleNUMANode {
		counter.Inc()
	}
}

// lastRunning returns the position of the last container that runs, where init
// containers come first, or -1 if none does.
func lastRunning(pod *v1.Pod, running func(container string) bool) int {
	last, at := -1, 0
	for c := range podquery.Containers(&pod.Spec) {
		if running(c.Name) {
			last = at
		}
		at++
	}
	return last
}

func (m *Manager) hints(of func(Provider) Hints) []Hints {
	var out []Hints
	for _, p := range m.providers {
		out = append(out, of(p))
	}
	return out
}

func (m *Manager) allocate(ctx context.Context, r Request) error {
	if !m.podScope && m.policy.name != None {
		var ok bool
		if r.Affinity, ok = m.policy.merge(m.hints(func(p Provider) Hints { return p.Hints(r) })); !ok {
			m.aligned(m.metrics.containers.Failed)
			return affinityError()
		}
	}
	for _, p := range m.providers {
		if err := p.Allocate(ctx, r); err != nil {
			return err
		}
	}
	if !m.podScope {
		m.aligned(m.metrics.containers.Done)
	}
	return nil
}

// Release frees what a pod has.
func (m *Manager) Release(uid types.UID) {
	for _, p := range m.providers {
		p.Release(uid)
	}
}

// PodNeeds returns how much of a resource the containers of a pod need at most
// at one time. of returns what one container needs.
func PodNeeds(pod *v1.Pod, of func(*v1.Container) int) int {
	sidecars, most, sum := 0, 0, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podquery.IsSidecar(c) {
			sidecars += of(c)
			most = max(most, sidecars)
		} else {
			most = max(most, sidecars+of(c))
		}
	}
	for i := range pod.Spec.Containers {
		sum += of(&pod.Spec.Containers[i])
	}
	return max(most, sidecars+sum)
}

// NewFor returns a manager by a policy on a machine with the given NUMA nodes,
// for tests of providers.
func NewFor(name string, nodes []int, providers ...Provider) *Manager {
	return &Manager{policy: policy{name: name, nodes: nodes}, providers: providers, metrics: newMetrics(), allocating: make(chan struct{}, 1)}
}
