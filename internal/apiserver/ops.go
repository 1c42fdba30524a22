package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/coracle-io/coracle/internal/apiserver/health"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/version"
)

// addOperations gives the server the paths by which it is operated, unless
// the configuration has its own: version, health and metrics.
func (s *Server) addOperations() {
	counted := metrics.NewRequests(s.InFlight)
	counted.Register(objectCounts{s})
	if s.Observe == nil {
		s.Observe = func(a Answered) { observe(counted, a, s.Clock.Since(a.Started)) }
	}
	live := []health.Check{health.Ping(), {Name: "etcd", Run: s.checkStore}}
	ready := append([]health.Check{}, live...)
	ready = append(ready, health.Check{Name: "informer-sync", Run: s.checkSynced}, health.Check{Name: "shutdown", Run: s.checkRunning})
	ready = append(ready, s.Checks...)
	handlers := map[string]http.Handler{
		"/version":  http.HandlerFunc(serveVersion),
		"/version/": http.HandlerFunc(serveVersion),
		"/metrics":  counted.Handler(),

		"/debug/pprof/":        http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
	for path, checks := range map[string][]health.Check{"/healthz": append(live, s.Checks...), "/livez": live, "/readyz": ready} {
		h := health.Handler(path, checks...)
		handlers[path], handlers[path+"/"] = h, h
	}
	maps.Copy(handlers, s.Handlers)
	s.Handlers = handlers
}

// storeCheckTimeout is how long a health check waits for the store.
const storeCheckTimeout = 2 * time.Second

func (s *Server) checkStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeCheckTimeout)
	defer cancel()
	_, err := s.Cache.Fresh(ctx)
	return err
}

var (
	errNotSynced    = errors.New("the cache has not been filled yet")
	errShuttingDown = errors.New("process is shutting down")
)

func (s *Server) checkSynced(context.Context) error {
	select {
	case <-s.Cache.Synced():
		return nil
	default:
		return errNotSynced
	}
}

func (s *Server) checkRunning(context.Context) error {
	if (*s.stop.Load()).Err() != nil {
		return errShuttingDown
	}
	return nil
}

func serveVersion(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(version.Info(), "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// observe counts a request. What does not exist is counted without its name,
// of which there are as many as clients can think of.
func observe(m *metrics.Requests, a Answered, latency time.Duration) {
	i := a.Info
	r := metrics.Request{Verb: i.Verb, DryRun: a.DryRun, Code: a.Code}
	if a.Known {
		r.Group, r.Version, r.Resource, r.Subresource = i.APIGroup, i.APIVersion, i.Resource, i.Subresource
		r.Namespaced, r.Named, r.IsResource = i.Namespace != "", i.Name != "", true
	}
	m.Observe(r, latency, a.Size)
}
