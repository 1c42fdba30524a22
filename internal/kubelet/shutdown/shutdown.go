// Package shutdown ends the pods of a node in the order of their priorities
// before the machine shuts down. It corresponds to upstream's node shutdown manager
// (KEP-2000, KEP-2712).
//
//	systemd-logind ──PrepareForShutdown──▶ node not Ready, pods rejected
//	      ▲                                └─▶ pods of the lowest priorities end,
//	      │                                    within their group's time, then the next
//	      └──────delay released───────────────────────┘
package shutdown

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/timespan"
)

// What the statuses of pods and nodes say.
const (
	Reason          = "Terminated"
	Message         = "Pod was terminated in response to imminent node shutdown."
	RejectedReason  = "NodeShutdown"
	RejectedMessage = "Pod was rejected as the node is shutting down."
	NotReady        = "node is shutting down"
)

// What the events of the node say.
const (
	EventReason  = "Shutdown"
	beganMessage = "Shutdown manager detected shutdown event"
	endedMessage = "Shutdown manager detected shutdown cancellation"
)

// systemCritical is the lowest priority of pods that the system needs.
const systemCritical = 2000000000

// Logind is a connection to systemd-logind.
type Logind interface {
	// InhibitDelay returns how long logind lets a shutdown be delayed.
	InhibitDelay(ctx context.Context) (time.Duration, error)
	// SetInhibitDelay asks for a longer delay.
	SetInhibitDelay(ctx context.Context, d time.Duration) error
	// Inhibit delays shutdowns until the returned lock is closed.
	Inhibit(ctx context.Context) (lock io.Closer, err error)
	// Shutdowns is sent true when a shutdown begins, and false when it is
	// cancelled. It is closed when the connection is lost.
	Shutdowns() <-chan bool
	Close() error
}

// Pods are the pods of the node.
type Pods interface {
	Active() []*v1.Pod
	// Shutdown ends a pod within grace seconds.
	Shutdown(pod *v1.Pod, grace int64)
	// Ended returns a channel that is closed when nothing of the pod runs.
	Ended(uid types.UID) <-chan struct{}
}

// Config configures a Manager.
type Config struct {
	Configuration *kubeletconfig.KubeletConfiguration
	Connect       func(ctx context.Context) (Logind, error)
	Pods          Pods
	Changed       func(notReady string) // after ShuttingDown has changed: why the node is not ready, "" if it may be
	Event         func(message string)  // records an event of the node, with EventReason
	Metrics       prometheus.Registerer
	Dir           string   // of the file that keeps the times of the last shutdown
	Files         files.FS // nil: they are not kept
}

// Manager delays shutdowns of the machine until the pods have ended.
type Manager struct {
	config     Config
	groups     []kubeletconfig.ShutdownGracePeriodByPodPriority // by priority
	down       atomic.Bool
	began, end prometheus.Gauge

	open *session // what Start has opened, until Run takes it
}

// session is one connection with its lock.
type session struct {
	logind Logind
	lock   io.Closer
}

// close lets the machine shut down and closes the connection.
func (s *session) close() {
	_ = s.lock.Close()
	_ = s.logind.Close()
}

// New returns a Manager, nil if the configuration has no time for the end of
// pods. Groups must have accepted the configuration.
func New(c Config) *Manager {
	groups, err := Groups(c.Configuration)
	if err != nil || len(groups) == 0 {
		return nil
	}
	m := &Manager{
		config: c, groups: groups,
		began: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_start_time_seconds", Help: "[ALPHA] Last graceful shutdown start time since unix epoch in seconds"}),
		end:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_end_time_seconds", Help: "[ALPHA] Last graceful shutdown start time since unix epoch in seconds"}),
	}
	c.Metrics.MustRegister(m.began, m.end)
	m.restore()
	return m
}

const (
	timesName = "graceful_node_shutdown_state"
	maxTimes  = 4 << 10
)

// times are what is kept of the last shutdown.
type times struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// restore shows the times of the last shutdown, which was another kubelet's.
func (m *Manager) restore() {
	if m.config.Files == nil {
		return
	}
	raw, err := m.config.Files.ReadFile(filepath.Join(m.config.Dir, timesName), maxTimes)
	if err != nil { // there was none
		return
	}
	last := times{}
	if json.Unmarshal(raw, &last) == nil {
		m.show(last)
	}
}

func (m *Manager) show(t times) {
	for gauge, at := range map[prometheus.Gauge]time.Time{m.began: t.StartTime, m.end: t.EndTime} {
		if at.IsZero() {
			gauge.Set(0)
			continue
		}
		gauge.Set(float64(at.Unix()))
	}
}

// keep shows the times of a shutdown, also after it. The disk does not hold it up.
func (m *Manager) keep(ctx context.Context, t times) {
	m.show(t)
	if m.config.Files == nil {
		return
	}
	raw, err := json.Marshal(t)
	if err == nil {
		err = m.config.Files.ReplaceUnsynced(filepath.Join(m.config.Dir, timesName), raw, 0o600)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The times of the shutdown are not kept")
	}
}

// Groups returns the time that each group of pods has to end, sorted by
// priority. A group has the pods from its priority up to the priority of the
// next group.
func Groups(c *kubeletconfig.KubeletConfiguration) ([]kubeletconfig.ShutdownGracePeriodByPodPriority, error) {
	whole, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	byPriority := c.ShutdownGracePeriodByPodPriority
	switch {
	case len(byPriority) > 0 && (whole != 0 || critical != 0):
		return nil, errors.New("shutdownGracePeriodByPodPriority cannot be used together with shutdownGracePeriod and shutdownGracePeriodCriticalPods")
	case whole < 0 || whole > 0 && whole < time.Second:
		return nil, fmt.Errorf("shutdownGracePeriod %s must be either zero or otherwise >= 1 sec", whole)
	case critical < 0 || critical > 0 && critical < time.Second:
		return nil, fmt.Errorf("shutdownGracePeriodCriticalPods %s must be either zero or otherwise >= 1 sec", critical)
	case critical > whole:
		return nil, fmt.Errorf("shutdownGracePeriodCriticalPods %s must be <= shutdownGracePeriod %s", critical, whole)
	}
	for i, group := range byPriority {
		if group.ShutdownGracePeriodSeconds < 0 {
			return nil, fmt.Errorf("shutdownGracePeriodByPodPriority[%d].shutdownGracePeriodSeconds %d must not be negative", i, group.ShutdownGracePeriodSeconds)
		}
	}
	if len(byPriority) == 0 {
		if whole == 0 {
			return nil, nil
		}
		return []kubeletconfig.ShutdownGracePeriodByPodPriority{
			{Priority: 0, ShutdownGracePeriodSeconds: int64((whole - critical).Seconds())},
			{Priority: systemCritical, ShutdownGracePeriodSeconds: int64(critical.Seconds())},
		}, nil
	}
	sorted := slices.Clone(byPriority)
	slices.SortStableFunc(sorted, func(a, b kubeletconfig.ShutdownGracePeriodByPodPriority) int {
		return cmp.Compare(a.Priority, b.Priority)
	})
	return sorted, nil
}

// requested returns the time that all groups need together.
func (m *Manager) requested() time.Duration {
	var sum time.Duration
	for _, group := range m.groups {
		sum += timespan.Seconds(group.ShutdownGracePeriodSeconds)
	}
	return sum
}

// ShuttingDown reports whether the machine is shutting down. It is false for a
// nil Manager.
func (m *Manager) ShuttingDown() bool { return m != nil && m.down.Load() }

// Start connects to logind and delays shutdowns from now on, until Close or the
// end of Run. Start, Run and Close are called one after the other.
func (m *Manager) Start(ctx context.Context) error {
	opened, err := m.connect(ctx)
	if err != nil {
		return fmt.Errorf("shutdownGracePeriod and shutdownGracePeriodByPodPriority need systemd-logind: %w", err)
	}
	m.open = opened
	return nil
}

// Close ends what Start has begun, if Run has not been called since.
func (m *Manager) Close() {
	if m.open != nil {
		m.open.close()
		m.open = nil
	}
}

func (m *Manager) connect(ctx context.Context) (_ *session, err error) {
	logind, err := m.config.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = logind.Close()
		}
	}()
	delay, err := logind.InhibitDelay(ctx)
	if err != nil {
		return nil, fmt.Errorf("read InhibitDelayMaxSec: %w", err)
	}
	if requested := m.requested(); delay < requested {
		if err := logind.SetInhibitDelay(ctx, requested); err != nil {
			return nil, fmt.Errorf("set InhibitDelayMaxSec to %s: %w", requested, err)
		}
		if delay, err = logind.InhibitDelay(ctx); err != nil {
			return nil, fmt.Errorf("read InhibitDelayMaxSec: %w", err)
		}
		if delay < requested {
			return nil, fmt.Errorf("node shutdown manager was unable to update logind InhibitDelayMaxSec to %s (ShutdownGracePeriod), current value of InhibitDelayMaxSec (%s) is less than requested ShutdownGracePeriod", requested, delay)
		}
	}
	lock, err := logind.Inhibit(ctx)
	if err != nil {
		return nil, fmt.Errorf("delay shutdowns: %w", err)
	}
	return &session{logind, lock}, nil
}

// The wait before a lost connection is opened again. It doubles with each
// attempt that fails.
const firstReconnect, maxReconnect = time.Second, time.Minute

// Run waits for shutdowns until ctx ends. Start must have succeeded.
func (m *Manager) Run(ctx context.Context) {
	log := klog.FromContext(ctx)
	current := m.open
	m.open = nil
	for wait := firstReconnect; ; wait = min(2*wait, maxReconnect) {
		if current != nil {
			m.serve(ctx, current)
			wait = firstReconnect
		}
		if !supervise.Pause(ctx, wait) {
			return
		}
		var err error
		if current, err = m.connect(ctx); err != nil {
			log.Error(err, "Connecting to systemd-logind failed, shutdowns of this machine do not wait for pods; will try again")
		}
	}
}

// serve handles what a connection reports until it is lost or ctx ends.
func (m *Manager) serve(ctx context.Context, s *session) {
	log := klog.FromContext(ctx)
	defer s.close()
	for {
		select {
		case <-ctx.Done():
			return
		case begins, open := <-s.logind.Shutdowns():
			if !open {
				return
			}
			log.Info("The machine's shutdown has begun or was cancelled", "begun", begins)
			m.down.Store(begins)
			if begins {
				m.config.Event(beganMessage)
				m.config.Changed(NotReady)
				began := time.Now()
				m.keep(ctx, times{StartTime: began})
				m.endPods(ctx)
				m.keep(ctx, times{StartTime: began, EndTime: time.Now()})
				_ = s.lock.Close()
				continue
			}
			m.config.Event(endedMessage)
			m.config.Changed("")
			lock, err := s.logind.Inhibit(ctx)
			if err != nil {
				log.Error(err, "Delaying shutdowns failed")
				return
			}
			_ = s.lock.Close()
			s.lock = lock
		}
	}
}

// endPods ends one group of pods after the other, the least important first. It
// waits for a group until all its pods have ended or its time is over.
func (m *Manager) endPods(ctx context.Context) {
	for i, pods := range partition(m.groups, m.config.Pods.Active()) {
		if len(pods) == 0 {
			continue
		}
		seconds := m.groups[i].ShutdownGracePeriodSeconds
		over := time.NewTimer(timespan.Seconds(seconds))
		for _, pod := range pods {
			m.config.Pods.Shutdown(pod, grace(pod, seconds))
		}
		for _, pod := range pods {
			select {
			case <-m.config.Pods.Ended(pod.UID):
				continue
			case <-over.C:
				klog.FromContext(ctx).Info("Pods have not ended in time", "priority", m.groups[i].Priority, "shutdownGracePeriodSeconds", seconds, "pod", klog.KObj(pod))
			case <-ctx.Done():
			}
			break
		}
		over.Stop()
	}
}

// grace returns the grace period of a pod in seconds, at most the period of its
// group.
func grace(pod *v1.Pod, group int64) int64 {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return min(*own, group)
	}
	return group
}

// partition returns the pods of each group. Pods below all priorities are in the
// first.
func partition(groups []kubeletconfig.ShutdownGracePeriodByPodPriority, pods []*v1.Pod) [][]*v1.Pod {
	out := make([][]*v1.Pod, len(groups))
	for _, pod := range pods {
		priority := ptr.Deref(pod.Spec.Priority, 0)
		at := 0
		for i, group := range groups {
			if group.Priority <= priority {
				at = i
			}
		}
		out[at] = append(out[at], pod)
	}
	return out
}
