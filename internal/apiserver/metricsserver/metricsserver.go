// Package metricsserver measures what nodes and pods use, for the group
// metrics.k8s.io: `kubectl top` and autoscalers read it. It is named after the
// program that serves this group elsewhere, and yields to it.
//
//	kubelets ── /metrics/resource ──► sample ─┐
//	                                          ├─► usage of a node: two points for each container ──► NodeMetrics, PodMetrics
//	                       usage before it ───┘
//
// Use of CPU is the difference of two points over the time between them. A
// container needs about 200 bytes.
//
// Nodes are not trusted. A node is believed only about containers of pods that
// are bound to it, and answers have bounds in size and time. Nodes that did not
// answer last time have turns of their own, so that they delay only each other.
package metricsserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// activePeriod is the time between two samples of a node while clients read
	// the metrics.
	activePeriod = 15 * time.Second
	// idlePeriod is the time between two samples once no client has read the
	// metrics for idleAfter.
	idlePeriod = time.Minute
	idleAfter  = 5 * time.Minute
	// askTimeout bounds the answer of a node.
	askTimeout = 10 * time.Second
	// maxAge is how long a measurement is served. The metrics of a node that
	// does not answer are removed after this time.
	maxAge = 90 * time.Second
	// atOnce bounds the concurrent requests to nodes, and failedAtOnce the
	// concurrent requests to nodes that did not answer the last time.
	atOnce       = 32
	failedAtOnce = 8
)

// Config configures a Server.
type Config struct {
	Objects objects.Source
	// Ask requests a path of the kubelet of a node.
	Ask func(ctx context.Context, node, path string) (*http.Response, error)
	// Serves reports whether this server serves the group: no other server
	// replaces it.
	Serves func() bool
}

// Server measures nodes while Run runs.
type Server struct {
	Config
	nodes objects.Reader[*corev1.Node]
	pods  objects.Reader[*corev1.Pod]
	// wake ends the pause between two rounds. It is buffered for one.
	wake chan struct{}

	mu    sync.Mutex // guards the following
	asked time.Time  // when the metrics were last read
	known map[string]*node
}

// node holds the last usage of a node and the state of the requests to its
// kubelet.
type node struct {
	usage  *usage // nil before the first answer
	busy   bool   // a request is under way, or waits for its turn
	failed bool   // the last request failed
}

// New returns a Server.
func New(c Config) *Server {
	return &Server{
		Config: c, nodes: objects.Of[*corev1.Node](c.Objects, objects.Nodes), pods: objects.Of[*corev1.Pod](c.Objects, objects.Pods),
		wake: make(chan struct{}, 1), known: map[string]*node{},
	}
}

// Run asks the nodes until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wait supervise.WaitGroup
	defer wait.Wait()
	defer cancel()
	turns, failedTurns := make(chan struct{}, atOnce), make(chan struct{}, failedAtOnce)
	for {
		for name, failed := range s.due() {
			turn := turns
			if failed {
				turn = failedTurns
			}
			wait.Go(ctx, func() {
				select {
				case turn <- struct{}{}:
					defer func() { <-turn }()
					s.update(ctx, name)
				case <-ctx.Done():
				}
			})
		}
		select {
		case <-ctx.Done():
			s.mu.Lock()
			clear(s.known) // another Run begins with no request under way
			s.mu.Unlock()
			return nil
		case <-time.After(s.pause()):
		case <-s.wake:
		}
	}
}

// due returns the nodes to ask now, and whether each failed last time. It
// forgets nodes that do not exist any more. While another server serves the
// group, it forgets all nodes.
func (s *Server) due() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := map[string]bool{}
	if !s.Serves() {
		clear(s.known)
		return due
	}
	there := make(map[string]*node, len(s.known))
	for n := range s.nodes.All("") {
		have := s.known[n.Name]
		if have == nil {
			have = &node{}
		}
		there[n.Name] = have
		if !have.busy {
			have.busy = true
			due[n.Name] = have.failed
		}
	}
	s.known = there
	return due
}

// pause returns the time until the next round. It is the shorter one also before
// there are nodes, and while a node that answers has no rates yet.
func (s *Server) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) == 0 || time.Since(s.asked) < idleAfter {
		return activePeriod
	}
	for _, n := range s.known {
		if !n.failed && (n.usage == nil || n.usage.node.length() == 0) {
			return activePeriod
		}
	}
	return idlePeriod
}

// touch records that a client reads the metrics.
func (s *Server) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := time.Since(s.asked) >= idleAfter
	s.asked = time.Now()
	if idle {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// update asks a node and records its usage.
func (s *Server) update(ctx context.Context, name string) {
	var taken *sample
	err := supervise.Call(func() (err error) {
		taken, err = s.sample(ctx, name)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.known[name]
	if n == nil {
		return
	}
	if err != nil && !n.failed && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Cannot measure a node", "node", name, "err", err)
	}
	n.busy, n.failed = false, err != nil
	if err == nil {
		n.usage = next(n.usage, taken, time.Now())
	}
}

// sample asks a node.
func (s *Server) sample(ctx context.Context, name string) (*sample, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := s.Ask(ctx, name, "/metrics/resource")
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		const excerpt = 200
		body, _ := io.ReadAll(io.LimitReader(answer.Body, excerpt)) // the status says enough
		return nil, fmt.Errorf("the kubelet answers with %d: %q", answer.StatusCode, body)
	}
	return read(answer.Body, time.Now(), func(pod types.NamespacedName, container string) bool {
		p, ok := s.pods.Get(pod.Namespace, pod.Name)
		return ok && p.Spec.NodeName == name && has(p, container)
	})
}

// has reports whether a pod has a container of that name.
func has(p *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(p.Spec.Containers, named) || slices.ContainsFunc(p.Spec.InitContainers, named) ||
		slices.ContainsFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// usageOf returns the usage of a node, or nil if there is none that is recent.
func (s *Server) usageOf(name string) *usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.known[name]; n != nil && n.usage != nil && time.Since(n.usage.received) <= maxAge {
		return n.usage
	}
	return nil
}
