package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// logind is a Logind in memory.
type logind struct {
	mu        sync.Mutex
	delay     time.Duration
	fixed     bool // the delay cannot be changed
	held      int
	shutdowns chan bool
}

func (l *logind) InhibitDelay(context.Context) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay, nil
}

func (l *logind) SetInhibitDelay(_ context.Context, d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fixed {
		l.delay = d
	}
	return nil
}

type lock struct {
	of   *logind
	once sync.Once
}

func (k *lock) Close() error {
	k.once.Do(func() {
		k.of.mu.Lock()
		defer k.of.mu.Unlock()
		k.of.held--
	})
	return nil
}

func (l *logind) Inhibit(context.Context) (io.Closer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held++
	return &lock{of: l}, nil
}

// connection is one connection to a logind.
type connection struct {
	*logind
	shutdowns <-chan bool
}

func (c connection) Shutdowns() <-chan bool { return c.shutdowns }
func (connection) Close() error             { return nil }

func (l *logind) locks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// pods are pods that end after a time of their own.
type pods struct {
	all   []*v1.Pod
	takes map[string]time.Duration
	began time.Time

	mu    sync.Mutex
	log   []string
	ended map[types.UID]chan struct{}
}

func (p *pods) add(name string, priority int32, grace int64, takes time.Duration) {
	p.all = append(p.all, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace}})
	p.takes[name], p.ended[types.UID(name)] = takes, make(chan struct{})
}

func (p *pods) Active() []*v1.Pod { return p.all }

func (p *pods) Shutdown(pod *v1.Pod, grace int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, fmt.Sprintf("%s %s within %d", time.Since(p.began), pod.Name, grace))
	ended := p.ended[pod.UID]
	time.AfterFunc(p.takes[pod.Name], func() { close(ended) })
}

func (p *pods) Ended(uid types.UID) <-chan struct{} { return p.ended[uid] }

func (p *pods) entries() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

func newPods() *pods {
	return &pods{takes: map[string]time.Duration{}, ended: map[types.UID]chan struct{}{}, began: time.Now()}
}

func seconds(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }

// running starts a Manager.
func running(t *testing.T, c *kubeletconfig.KubeletConfiguration, l *logind, p *pods) *Manager {
	t.Helper()
	m := New(Config{Configuration: c, Pods: p, Changed: func(string) {}, Event: func(string) {}, Metrics: prometheus.NewRegistry(), Connect: func(context.Context) (Logind, error) {
		return connection{l, l.shutdowns}, nil
	}})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return m
}

// Ordinary pods end first. Critical ones follow when those have ended, and
// within their own part of the time.
func TestPodsEndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := &logind{delay: 5 * time.Second, shutdowns: make(chan bool)}, newPods()
		p.add("critical", 2000001000, 30, 3*time.Second)
		p.add("web", 0, 30, 12*time.Second)
		p.add("quick", 100, 5, time.Second)
		m := running(t, &kubeletconfig.KubeletConfiguration{ShutdownGracePeriod: seconds(30), ShutdownGracePeriodCriticalPods: seconds(10)}, l, p)
		if l.delay != 30*time.Second || l.locks() != 1 || m.ShuttingDown() {
			t.Errorf("before: delay %s, %d locks, shutting down: %t", l.delay, l.locks(), m.ShuttingDown())
		}
		p.began = time.Now()
		l.shutdowns <- true
		synctest.Wait()
		if !m.ShuttingDown() || l.locks() != 1 {
			t.Errorf("meanwhile: shutting down: %t, %d locks", m.ShuttingDown(), l.locks())
		}
		time.Sleep(15*time.Second + time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]string{"0s web within 20", "0s quick within 5", "12s critical within 10"}, p.entries()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if l.locks() != 0 {
			t.Errorf("%d locks after all pods have ended", l.locks())
		}
		l.shutdowns <- false
		synctest.Wait()
		if m.ShuttingDown() || l.locks() != 1 {
			t.Errorf("after a cancelled shutdown: shutting down: %t, %d locks", m.ShuttingDown(), l.locks())
		}
	})
}

// A group that does not end in time does not hold up the next. Groups without
// pods take no time.
func TestGroupsByPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := &logind{delay: time.Hour, shutdowns: make(chan bool)}, newPods()
		p.add("stuck", 5, 600, time.Hour)
		p.add("negative", -7, 1, time.Hour)
		p.add("important", 100000, 600, time.Second)
		p.add("last", 2000000000, 600, time.Second)
		running(t, &kubeletconfig.KubeletConfiguration{ShutdownGracePeriodByPodPriority: []kubeletconfig.ShutdownGracePeriodByPodPriority{
			{Priority: 100000, ShutdownGracePeriodSeconds: 10}, {Priority: 0, ShutdownGracePeriodSeconds: 60}, {Priority: 10000, ShutdownGracePeriodSeconds: 180},
			{Priority: 2000000000, ShutdownGracePeriodSeconds: 120},
		}}, l, p)
		p.began = time.Now()
		l.shutdowns <- true
		time.Sleep(62*time.Second + time.Millisecond)
		synctest.Wait()
		want := []string{"0s stuck within 60", "0s negative within 1", "1m0s important within 10", "1m1s last within 120"}
		if diff := cmp.Diff(want, p.entries()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if l.locks() != 0 {
			t.Errorf("%d locks at the end", l.locks())
		}
	})
}

// A connection that is lost is opened again, with a lock.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logind{delay: time.Hour, shutdowns: make(chan bool)}
		running(t, &kubeletconfig.KubeletConfiguration{ShutdownGracePeriod: seconds(30)}, l, newPods())
		lost := l.shutdowns
		l.shutdowns = make(chan bool)
		close(lost)
		synctest.Wait()
		if l.locks() != 0 {
			t.Errorf("%d locks without a connection", l.locks())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if l.locks() != 1 {
			t.Errorf("%d locks with a new connection", l.locks())
		}
	})
}

// TestClose checks that a Manager whose Run is never called delays no shutdown.
func TestClose(t *testing.T) {
	l := &logind{delay: time.Hour}
	m := New(Config{
		Configuration: &kubeletconfig.KubeletConfiguration{ShutdownGracePeriod: seconds(30)}, Pods: newPods(), Metrics: prometheus.NewRegistry(),
		Connect: func(context.Context) (Logind, error) { return connection{logind: l}, nil },
	})
	m.Close()
	for range 2 {
		if err := m.Start(t.Context()); err != nil || l.locks() != 1 {
			t.Fatalf("%d locks (%v)", l.locks(), err)
		}
		m.Close()
		if l.locks() != 0 {
			t.Errorf("%d locks after Close", l.locks())
		}
	}
}

func TestStartFails(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{ShutdownGracePeriod: seconds(30)}
	for want, connect := range map[string]func(context.Context) (Logind, error){
		"no bus": func(context.Context) (Logind, error) { return nil, errors.New("no bus") },
		"InhibitDelayMaxSec (5s) is less": func(context.Context) (Logind, error) {
			return connection{logind: &logind{delay: 5 * time.Second, fixed: true}}, nil
		},
	} {
		m := New(Config{Configuration: c, Pods: newPods(), Metrics: prometheus.NewRegistry(), Connect: connect})
		if err := m.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "systemd-logind") {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

func TestGroupsOfConfigurations(t *testing.T) {
	if m := New(Config{Configuration: &kubeletconfig.KubeletConfiguration{}}); m != nil || m.ShuttingDown() {
		t.Error("there is a manager without any time for pods")
	}
	for want, c := range map[string]kubeletconfig.KubeletConfiguration{
		">= 1 sec":                       {ShutdownGracePeriod: metav1.Duration{Duration: time.Millisecond}},
		"<= shutdownGracePeriod":         {ShutdownGracePeriod: seconds(10), ShutdownGracePeriodCriticalPods: seconds(11)},
		"cannot be used together":        {ShutdownGracePeriod: seconds(10), ShutdownGracePeriodByPodPriority: []kubeletconfig.ShutdownGracePeriodByPodPriority{{}}},
		"shutdownGracePeriodSeconds -1 ": {ShutdownGracePeriodByPodPriority: []kubeletconfig.ShutdownGracePeriodByPodPriority{{ShutdownGracePeriodSeconds: -1}}},
	} {
		if _, err := Groups(&c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	group := func(priority int32, seconds int64) kubeletconfig.ShutdownGracePeriodByPodPriority {
		return kubeletconfig.ShutdownGracePeriodByPodPriority{Priority: priority, ShutdownGracePeriodSeconds: seconds}
	}
	for _, c := range []struct {
		kubeletconfig.KubeletConfiguration
		want []kubeletconfig.ShutdownGracePeriodByPodPriority
	}{
		{kubeletconfig.KubeletConfiguration{ShutdownGracePeriod: seconds(300), ShutdownGracePeriodCriticalPods: seconds(120)}, []kubeletconfig.ShutdownGracePeriodByPodPriority{group(0, 180), group(systemCritical, 120)}},
		{kubeletconfig.KubeletConfiguration{ShutdownGracePeriod: seconds(100)}, []kubeletconfig.ShutdownGracePeriodByPodPriority{group(0, 100), group(systemCritical, 0)}},
		{kubeletconfig.KubeletConfiguration{ShutdownGracePeriod: seconds(5), ShutdownGracePeriodCriticalPods: seconds(5)}, []kubeletconfig.ShutdownGracePeriodByPodPriority{group(0, 0), group(systemCritical, 5)}},
		{kubeletconfig.KubeletConfiguration{ShutdownGracePeriodByPodPriority: []kubeletconfig.ShutdownGracePeriodByPodPriority{group(20, 2), group(-5, 9), group(10, 1)}}, []kubeletconfig.ShutdownGracePeriodByPodPriority{group(-5, 9), group(10, 1), group(20, 2)}},
	} {
		if got, err := Groups(&c.KubeletConfiguration); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("groups %v, %v, want %v", got, err, c.want)
		}
	}
}

// The next kubelet shows when the last shutdown began and ended.
func TestTimesOfTheLastShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, p := &files.Memory{}, newPods()
		if err := disk.MkdirAll("/kubelet", 0o755); err != nil {
			t.Fatal(err)
		}
		p.add("web", 0, 30, 5*time.Second)
		l := &logind{delay: time.Minute, shutdowns: make(chan bool)}
		shown := func() (m *Manager, got string) {
			registry := prometheus.NewRegistry()
			m = New(Config{
				Configuration: &kubeletconfig.KubeletConfiguration{ShutdownGracePeriod: seconds(30)}, Pods: p, Changed: func(string) {}, Event: func(string) {}, Metrics: registry,
				Connect: func(context.Context) (Logind, error) { return connection{l, l.shutdowns}, nil }, Files: disk, Dir: "/kubelet",
			})
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				got += fmt.Sprintf("%s %.0f ", f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
			}
			return m, got
		}
		m, got := shown()
		if want := "kubelet_graceful_shutdown_end_time_seconds 0 kubelet_graceful_shutdown_start_time_seconds 0 "; got != want {
			t.Errorf("before any shutdown: %s", got)
		}
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); m.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		began := time.Now().Unix()
		l.shutdowns <- true
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := fmt.Sprintf("kubelet_graceful_shutdown_end_time_seconds %d kubelet_graceful_shutdown_start_time_seconds %d ", began+5, began)
		if _, got := shown(); got != want {
			t.Errorf("after one: %s, want %s", got, want)
		}
	})
}
