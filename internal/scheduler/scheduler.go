// Package scheduler assigns pods to nodes.
//
// One goroutine decides, pod after pod, on the live state of the cache;
// bindings are written by others, many at a time, while the next pods are
// being decided on the assumption that those will succeed.
//
//	pods without node ──► queue ──► choose (filter, score) ──► assume ──► bind
//	                        ▲                │ no node fits                │ failed
//	                        └── events ──────┴─────────────────────────────┘
package scheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
	"github.com/coracle-io/coracle/internal/supervise"
)

// DefaultName is the scheduler of pods that name none.
const DefaultName = v1.DefaultSchedulerName

// bindings is how many bindings may be under way at a time.
const bindings = 64

// Config is what a scheduler needs.
type Config struct {
	Client *client.Client
	// Name is the schedulerName of the pods it takes; "" is DefaultName.
	Name string
	// Clock is for back-off; nil is the real one.
	Clock clock.WithTicker
	// Seed decides between equally good nodes.
	Seed uint64
	// Metrics counts what it does; nil counts nowhere.
	Metrics *Metrics
}

// Scheduler assigns the pods of one scheduler name.
type Scheduler struct {
	client  *client.Client
	name    string
	profile *profile
	cache   *clusterCache
	queue   *queue
	random  *rand.Rand
	events  *recorder
	metrics *Metrics
	gated   sync.Map // the UIDs of the pods that wait for their gates
	start   int      // where the search for nodes goes on
	// protected reports whether a disruption budget forbids a pod's eviction.
	protected func(*v1.Pod) bool
}

// New makes a scheduler; it does nothing until Run.
func New(c Config) *Scheduler {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	name := c.Name
	s := &Scheduler{
		client:  c.Client,
		name:    name,
		events:  newRecorder(c.Client.Kubernetes, name),
		metrics: c.Metrics,
		profile: &profile{filters: all.Filters(), scores: all.Scores(), observe: func(point string, ok bool, took time.Duration) {
			c.Metrics.point(point, name, ok, took)
		}},
		cache:  newCache(selectorsFrom(c.Client.Informers)),
		queue:  newQueue(c.Clock),
		random: rand.New(rand.NewPCG(c.Seed, 0)),

		protected: protectedBy(c.Client.Informers.Policy().V1().PodDisruptionBudgets().Lister()),
	}
	s.queue.incoming = func(queue, event string) { c.Metrics.incoming.WithLabelValues(queue, event).Inc() }
	return s
}

// Run schedules until ctx ends. It returns once everything it started has ended.
func (s *Scheduler) Run(ctx context.Context) error {
	defer s.metrics.show(s)()
	return supervise.Run(ctx, func(ctx context.Context) error {
		supervise.Go(ctx, func() { s.events.run(ctx) })
		return s.work(ctx)
	})
}

// work decides about pod after pod.
func (s *Scheduler) work(ctx context.Context) error {
	if err := s.watch(ctx); err != nil {
		return err
	}
	klog.FromContext(ctx).V(1).Info("Scheduling", "schedulerName", s.name)
	slots := make(chan struct{}, bindings)
	for {
		it, err := s.queue.pop(ctx)
		if err != nil {
			return nil // ctx ended
		}
		if s.cache.holds(it.pod.Pod.UID) {
			continue // an update made before the binding under way came late
		}
		began := time.Now()
		node, err := s.decide(it.pod)
		decided := time.Since(began)
		s.metrics.algorithm.Observe(decided.Seconds())
		if err != nil {
			s.beside(ctx, it, func() { s.refuse(ctx, it, err, decided) })
			continue
		}
		slots <- struct{}{}
		s.beside(ctx, it, func() {
			defer func() { <-slots }()
			s.bind(ctx, it, node, began)
		})
	}
}

// beside does the rest of the work on a pod in a goroutine. A panic over one
// pod must not keep others from being scheduled: the pod is tried again later.
func (s *Scheduler) beside(ctx context.Context, it *item, work func()) {
	supervise.Go(ctx, func() {
		err := supervise.Call(func() error { work(); return nil })
		if err != nil {
			supervise.Note(ctx, err)
			s.cache.forget(it.pod.Pod.UID)
			s.queue.giveBack(it, nil)
		}
	})
}

// decide chooses a node and assumes the pod there. A panic over the pod is an
// error.
func (s *Scheduler) decide(pod *framework.Pod) (name string, err error) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	err = supervise.Call(func() error {
		node, next, err := s.profile.choose(pod, &s.cache.cluster, s.start, s.random)
		s.start = next
		if err != nil {
			return err
		}
		s.cache.place(pod, node.Name, true)
		name = node.Name
		return nil
	})
	return name, err
}

// bind writes a decision, the search for which began then.
func (s *Scheduler) bind(ctx context.Context, it *item, node string, began time.Time) {
	running := s.metrics.goroutines.WithLabelValues("binding")
	running.Inc()
	defer running.Dec()
	pod, binding := it.pod.Pod, time.Now()
	log := klog.FromContext(ctx)
	err := s.client.Kubernetes.CoreV1().Pods(pod.Namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	s.metrics.point("Bind", s.name, err == nil, time.Since(binding))
	if err == nil {
		s.metrics.attempted(scheduled, s.name, time.Since(began))
		s.metrics.placed(it.attempts, s.queue.clock.Since(it.since))
		log.V(2).Info("Bound pod", "pod", klog.KObj(pod), "node", node, "attempts", it.attempts)
		s.events.Eventf(pod, nil, v1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned %v/%v to %v", pod.Namespace, pod.Name, node)
		return
	}
	s.cache.forget(pod.UID)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
		return // the pod is gone, or bound by someone else
	}
	s.metrics.attempted(failed, s.name, time.Since(began))
	log.Error(err, "Binding failed", "pod", klog.KObj(pod), "node", node)
	s.queue.giveBack(it, nil)
	s.queue.move("AssignedPodDelete", nil)
}

// refuse puts a pod that fits nowhere back and says why, in an event and in
// the pod's condition. The decision took so long.
func (s *Scheduler) refuse(ctx context.Context, it *item, err error, decided time.Duration) {
	pod := it.pod.Pod
	message := err.Error()
	var unfit *fitError
	if errors.As(err, &unfit) {
		s.metrics.attempted(unschedulable, s.name, decided)
		if unfit.nodes > 0 {
			if why := s.makeRoom(ctx, it, unfit); why != "" {
				message += " no new claims to deallocate, preemption: " + why + "."
			}
		}
		s.queue.giveBack(it, append(unfit.plugins(), anyNode))
	} else {
		supervise.Note(ctx, err)
		s.metrics.attempted(failed, s.name, decided)
		s.queue.giveBack(it, nil)
	}
	klog.FromContext(ctx).V(3).Info("Pod fits nowhere", "pod", klog.KObj(pod), "reason", message)
	s.events.Eventf(pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", message)
	if err := s.explain(ctx, pod, message); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Writing the pod's PodScheduled condition failed", "pod", klog.KObj(pod))
	}
}
