package podsapi

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/localapi/localapitest"
)

// node has pods.
type node struct {
	mu      sync.Mutex // guards the following
	ready   bool
	pods    []*v1.Pod
	changed chan struct{}
}

func (n *node) Pods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*v1.Pod(nil), n.pods...)
}

func (n *node) Ready() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ready
}

func (n *node) Watch() (<-chan struct{}, func()) { return n.changed, func() {} }

func (n *node) set(pods ...*v1.Pod) {
	n.mu.Lock()
	n.ready, n.pods = true, pods
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func pod(uid types.UID, phase v1.PodPhase) *v1.Pod {
	p := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
	p.Namespace, p.Name, p.UID = "default", "web-"+string(uid), uid
	return p
}

// serve returns a client of a server that runs.
func serve(t *testing.T, n *node) (*Server, api.PodsClient) {
	t.Helper()
	dir := localapitest.Dir(t)
	s := New(Config{Dir: dir, Files: files.OS{}, Pods: n, Metrics: prometheus.NewRegistry()})
	return s, api.NewPodsClient(localapitest.Serve(t, s.Run, dir, "pods-api.sock"))
}

// decode returns the UID and the phase of a pod.
func decode(t *testing.T, raw []byte) string {
	t.Helper()
	p := &v1.Pod{}
	if err := p.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	return string(p.UID) + " " + string(p.Status.Phase)
}

// Clients get the pods once all of them are known.
func TestPods(t *testing.T) {
	n := &node{changed: make(chan struct{}, 1)}
	s, c := serve(t, n)
	if _, err := c.ListPods(t.Context(), &api.ListPodsRequest{}, grpc.WaitForReady(true)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the pods are known: %v", err)
	}
	n.set(pod("b", v1.PodRunning), pod("a", v1.PodPending))
	list, err := c.ListPods(t.Context(), &api.ListPodsRequest{})
	if err != nil || len(list.GetPods()) != 2 || decode(t, list.GetPods()[0]) != "a Pending" || decode(t, list.GetPods()[1]) != "b Running" {
		t.Errorf("the list is %v, %v", list, err)
	}
	if got, err := c.GetPod(t.Context(), &api.GetPodRequest{PodUID: "b"}); err != nil || decode(t, got.GetPod()) != "b Running" {
		t.Errorf("the pod is %v, %v", got, err)
	}
	if _, err := c.GetPod(t.Context(), &api.GetPodRequest{PodUID: "c"}); status.Code(err) != codes.NotFound || status.Convert(err).Message() != "pod with UID c not found" {
		t.Errorf("a pod that is not there: %v", err)
	}
	for _, want := range []struct {
		method, code string
		count        float64
	}{{"", "OK", 2}, {"ListPods", "OK", 1}, {"ListPods", "FailedPrecondition", 1}, {"GetPod", "NotFound", 1}, {"WatchPods", "OK", 0}} {
		if got := testutil.ToFloat64(s.requests[want.method].WithLabelValues(version, want.code)); got != want.count {
			t.Errorf("%v requests of %q with %s, want %v", got, want.method, want.code, want.count)
		}
	}
}

// A watch begins with all pods and goes on with what changes.
func TestWatch(t *testing.T) {
	n := &node{changed: make(chan struct{}, 1)}
	n.set(pod("a", v1.PodPending))
	_, c := serve(t, n)
	w, err := c.WatchPods(t.Context(), &api.WatchPodsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	want := func(all ...string) {
		t.Helper()
		for _, want := range all {
			event, err := w.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got := event.GetType().String()
			if event.GetType() != api.EventType_INITIAL_SYNC_COMPLETE {
				got += " " + decode(t, event.GetPod())
			}
			if got != want {
				t.Fatalf("event %q, want %q", got, want)
			}
		}
	}
	want("ADDED a Pending", "INITIAL_SYNC_COMPLETE")
	n.set(pod("a", v1.PodRunning), pod("b", v1.PodPending))
	want("MODIFIED a Running", "ADDED b Pending")
	n.set(pod("b", v1.PodRunning))
	want("MODIFIED b Running", "DELETED a ")
}

// stream is a stream to a client that takes everything.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context     { return s.ctx }
func (stream) Send(*api.WatchPodsEvent) error { return nil }

// The code of a watch, which clients and metrics see, says why it has ended.
func TestEndOfAWatch(t *testing.T) {
	n := &node{changed: make(chan struct{}, 1)}
	n.set(pod("a", v1.PodRunning))
	s := New(Config{Pods: n, Metrics: prometheus.NewRegistry()})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Time{})
	defer cancel()
	for want, ctx := range map[codes.Code]context.Context{codes.Canceled: canceled, codes.DeadlineExceeded: late} {
		if err := s.WatchPods(&api.WatchPodsRequest{}, stream{ctx: ctx}); status.Code(err) != want {
			t.Errorf("the watch ends with %v, want %v", err, want)
		}
	}
}

// Monitoring finds the metric of dropped events, of which there are none.
func TestDroppedEvents(t *testing.T) {
	shown := prometheus.NewRegistry()
	New(Config{Metrics: shown})
	const want = `# HELP kubelet_pod_watch_events_dropped_total [ALPHA] Cumulative number of pod watch events dropped.
# TYPE kubelet_pod_watch_events_dropped_total counter
kubelet_pod_watch_events_dropped_total 0
`
	if err := testutil.GatherAndCompare(shown, strings.NewReader(want), "kubelet_pod_watch_events_dropped_total"); err != nil {
		t.Error(err)
	}
}
