// Package podsapi serves the pods of the node, as the kubelet knows them, at a socket of
// the node. It corresponds to upstream's Pods API (KEP-4188,
// k8s.io/kubelet/pkg/apis/pods/v1alpha1).
package podsapi

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/localapi"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Pods are the pods of the node.
type Pods interface {
	// Pods returns the pods with the statuses that the kubelet knows.
	Pods() []*v1.Pod
	// Ready reports whether all pods are known.
	Ready() bool
	// Watch returns a channel that receives after pods have changed, until stop is
	// called.
	Watch() (changed <-chan struct{}, stop func())
}

// Config configures a Server.
type Config struct {
	Dir     string // of the socket
	Files   files.FS
	Pods    Pods
	Metrics prometheus.Registerer
}

// version is the version of the API, as metrics show it.
const version = "v1alpha1"

// pause is the time between two looks of a watch at the pods.
const pause = 50 * time.Millisecond

// Server answers about pods.
type Server struct {
	api.UnimplementedPodsServer
	config   Config
	requests map[string]*prometheus.CounterVec // by method; "" is all
}

// New returns a server. Run serves.
func New(c Config) *Server {
	s := &Server{config: c, requests: map[string]*prometheus.CounterVec{}}
	for method, name := range map[string]string{"": "", "ListPods": "list_", "GetPod": "get_", "WatchPods": "watch_"} {
		s.requests[method] = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_requests_" + name + "total", Help: "[ALPHA] Cumulative number of requests to the Pods API. Broken down by server api version and status code.",
		}, []string{"server_api_version", "status_code"})
		c.Metrics.MustRegister(s.requests[method])
	}
	// It stays at 0: a watch sends what has changed since it was read, and drops nothing.
	c.Metrics.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_pod_watch_events_dropped_total", Help: "[ALPHA] Cumulative number of pod watch events dropped.",
	}))
	return s
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) {
	service := localapi.Service{
		Name: "pods", Dir: s.config.Dir, Socket: "pods-api.sock", Files: s.config.Files, Count: s.count,
		Register: func(r grpc.ServiceRegistrar) { api.RegisterPodsServer(r, s) },
	}
	service.Run(ctx)
}

func (s *Server) count(method string, err error) {
	for _, of := range []string{"", method} {
		s.requests[of].WithLabelValues(version, status.Code(err).String()).Inc()
	}
}

// pods returns the pods in the order of their UIDs.
func (s *Server) pods() ([]*v1.Pod, error) {
	if !s.config.Pods.Ready() {
		return nil, status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
	pods := s.config.Pods.Pods()
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return pods, nil
}

func encode(pod *v1.Pod) ([]byte, error) {
	raw, err := pod.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
	}
	return raw, nil
}

// ListPods implements the API.
func (s *Server) ListPods(context.Context, *api.ListPodsRequest) (*api.ListPodsResponse, error) {
	pods, err := s.pods()
	if err != nil {
		return nil, err
	}
	response := &api.ListPodsResponse{}
	for _, pod := range pods {
		raw, err := encode(pod)
		if err != nil {
			return nil, err
		}
		response.Pods = append(response.Pods, raw)
	}
	return response, nil
}

// GetPod implements the API.
func (s *Server) GetPod(_ context.Context, r *api.GetPodRequest) (*api.GetPodResponse, error) {
	pods, err := s.pods()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return string(pod.UID) == r.GetPodUID() })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.GetPodUID())
	}
	raw, err := encode(pods[i])
	if err != nil {
		return nil, err
	}
	return &api.GetPodResponse{Pod: raw}, nil
}

// WatchPods implements the API. Changes that a client is too slow to read are sent as
// one.
func (s *Server) WatchPods(_ *api.WatchPodsRequest, stream grpc.ServerStreamingServer[api.WatchPodsEvent]) error {
	ctx := stream.Context()
	changed, stop := s.config.Pods.Watch()
	defer stop()
	w := watch{stream: stream, sent: map[types.UID]sent{}}
	if err := s.update(&w); err != nil {
		return err
	}
	if err := stream.Send(&api.WatchPodsEvent{Type: api.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-changed:
		}
		if err := s.update(&w); err != nil {
			return err
		}
		if !supervise.Pause(ctx, pause) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// watch is a stream, and what its client knows of the pods.
type watch struct {
	stream grpc.ServerStreamingServer[api.WatchPodsEvent]
	sent   map[types.UID]sent
}

// sent is a pod that was sent.
type sent struct {
	namespace, name string
	sum             [sha256.Size]byte // of all of it
}

// update sends what has changed since it was called before.
func (s *Server) update(w *watch) error {
	pods, err := s.pods()
	if err != nil {
		return err
	}
	gone := maps.Clone(w.sent)
	for _, pod := range pods {
		raw, err := encode(pod)
		if err != nil {
			return err
		}
		delete(gone, pod.UID)
		event, now := api.EventType_ADDED, sent{pod.Namespace, pod.Name, sha256.Sum256(raw)}
		if before, known := w.sent[pod.UID]; known {
			event = api.EventType_MODIFIED
			if before == now {
				continue
			}
		}
		if err := w.stream.Send(&api.WatchPodsEvent{Type: event, Pod: raw}); err != nil {
			return err
		}
		w.sent[pod.UID] = now
	}
	for _, uid := range slices.Sorted(maps.Keys(gone)) {
		raw, err := encode(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: gone[uid].namespace, Name: gone[uid].name, UID: uid}})
		if err != nil {
			return err
		}
		if err := w.stream.Send(&api.WatchPodsEvent{Type: api.EventType_DELETED, Pod: raw}); err != nil {
			return err
		}
		delete(w.sent, uid)
	}
	return nil
}
