package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver/fairness"
	"github.com/coracle-io/coracle/internal/apiserver/health"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/version"
)

// addOperations gives the server the paths by which it is operated, unless
// the configuration has its own: version, health and metrics.
func (s *Server) addOperations() {
	s.Metrics.InFlight(s.InFlight)
	s.Metrics.MustRegister(objectCounts{s.registry})
	if s.Observe == nil {
		s.Observe = s.count
	}
	own := []health.Check{health.Ping(), {Name: "log", Run: logging.Check}, {Name: "etcd", Run: s.checkStore}}
	alive := slices.Clone(own)
	alive[len(alive)-1].Outside = true // a server that is started again finds the same etcd
	synced := health.Check{Name: "informer-sync", Run: s.checkSynced}
	running := health.Check{Name: "shutdown", Run: s.checkRunning}
	live := slices.Concat(own, s.Steps)
	ready := slices.Concat(own, []health.Check{synced}, s.Steps, []health.Check{running}, s.Checks)
	handlers := map[string]http.Handler{
		"/version":  http.HandlerFunc(serveVersion),
		"/version/": http.HandlerFunc(serveVersion),
		"/metrics":  s.Metrics.Handler(),

		"/metrics/slis": s.Metrics.Checks.Handler(),
	}
	for path, checks := range map[string][]health.Check{"/healthz": slices.Concat(live, s.Checks), "/livez": slices.Concat(alive, s.inGrace(s.Steps)), "/readyz": ready} {
		h := health.Handler(path, s.noted(strings.TrimPrefix(path, "/"), checks)...)
		handlers[path], handlers[path+"/"] = h, h
		for _, c := range checks {
			handlers[path+"/"+c.Name] = h // which is listed at /
		}
	}
	if s.Fairness != nil {
		s.Metrics.MustRegister(metrics.FlowUses(s.Fairness.Use))
		handlers[fairness.DumpPath] = s.Fairness.Dumps()
	}
	maps.Copy(handlers, s.Handlers)
	s.Handlers = handlers
}

// noted returns the checks of a kind (healthz, livez or readyz) with their
// results counted.
func (s *Server) noted(kind string, checks []health.Check) []health.Check {
	all := make([]health.Check, len(checks))
	for i, c := range checks {
		all[i] = health.Check{Name: c.Name, Outside: c.Outside, Run: func(ctx context.Context) error {
			err := c.Run(ctx)
			s.Metrics.Checks.Observe(kind, c.Name, err)
			return err
		}}
	}
	return all
}

// inGrace returns the checks with all being well until LivezGracePeriod is over.
func (s *Server) inGrace(checks []health.Check) []health.Check {
	if s.LivezGracePeriod == 0 {
		return checks
	}
	end := s.Clock.Now().Add(s.LivezGracePeriod)
	all := make([]health.Check, len(checks))
	for i, c := range checks {
		all[i] = health.Check{Name: c.Name, Run: func(ctx context.Context) error {
			if s.Clock.Now().Before(end) {
				return nil
			}
			return c.Run(ctx)
		}}
	}
	return all
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
	if s.leaving.Load() || (*s.stop.Load()).Err() != nil {
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

// count counts an answered request.
func (s *Server) count(a Answered) {
	answer := metrics.Answer{
		Latency: s.Clock.Since(a.Started), Elsewhere: a.Elsewhere, Read: a.Read, Written: a.Size,
		Dropped: a.Dropped, Deprecated: a.Deprecated, Removed: a.Removed,
	}
	s.Metrics.Requests.Observe(counted(&a), answer)
}

// counted says which requests this one is counted with. What does not exist
// is counted without its name, of which there are as many as clients can
// think of.
func counted(a *Answered) metrics.Request {
	i := a.Info
	r := metrics.Request{Verb: i.Verb, DryRun: a.DryRun, Code: a.Code}
	if !i.IsResourceRequest && !slices.Contains(methods, i.Verb) {
		r.Verb = "" // as there are as many methods as clients can think of, too
	}
	switch {
	case a.Known:
		r.Group, r.Version, r.Resource, r.Subresource = i.APIGroup, i.APIVersion, i.Resource, i.Subresource
		r.Namespaced, r.Named, r.IsResource, r.Apply = i.Namespace != "", i.Name != "", true, a.Apply
	case i.Path == "/healthz" || i.Path == "/livez" || i.Path == "/readyz":
		r.Subresource = i.Path
	}
	return r
}

// methods are the verbs of requests that are not about resources.
var methods = []string{"get", "head", "post", "put", "patch", "delete", "options", "connect", "trace"}

// beginLongRunning counts a request that takes as long as it likes, until the
// function that it returns is called.
func (s *Server) beginLongRunning(i *apirequest.RequestInfo) (end func()) {
	a := Answered{Info: i}
	if e := s.registry.Routes().Find(schema.GroupVersion{Group: i.APIGroup, Version: i.APIVersion}, i.Resource); e != nil {
		a.Known = i.Subresource == "" || e.Resource.Subresource(i.Subresource) != nil
	}
	return s.Metrics.Requests.Begin(counted(&a))
}
