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
	"github.com/coracle-io/coracle/internal/health"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/version"
)

// addOperationHandlers adds handlers for version, health and metrics, unless the
// configuration has its own.
func (s *Server) addOperationHandlers(c *HealthConfig) {
	s.registry.Metrics.InFlight(s.InFlight)
	s.registry.Metrics.MustRegister(objectCounts{s.registry})
	etcd := health.Check{Name: "etcd", Run: s.checkStore}
	outside := etcd
	outside.Outside = true // restarting this server does not repair etcd
	own := []health.Check{health.Ping(), {Name: "log", Run: logging.Check}, etcd}
	alive := []health.Check{health.Ping(), {Name: "log", Run: logging.Check}, outside}
	synced := health.Check{Name: "informer-sync", Run: s.checkSynced}
	running := health.Check{Name: "shutdown", Run: s.checkRunning}
	live := slices.Concat(own, c.Steps)
	ready := slices.Concat(own, []health.Check{{Name: "etcd-readiness", Run: s.checkStore}, synced}, c.Steps, []health.Check{running}, c.Checks)
	handlers := map[string]http.Handler{
		"/version":  http.HandlerFunc(serveVersion),
		"/version/": http.HandlerFunc(serveVersion),
		"/metrics":  s.registry.Metrics.Handler(),

		"/metrics/slis": s.registry.Metrics.Checks.Handler(),
	}
	for path, checks := range map[string][]health.Check{"/healthz": slices.Concat(live, c.Checks), "/livez": slices.Concat(alive, s.withGracePeriod(c.Steps, c.LivezGracePeriod)), "/readyz": ready} {
		h := health.Handler(path, s.registry.Metrics.Checks.Observed(strings.TrimPrefix(path, "/"), checks)...)
		handlers[path], handlers[path+"/"] = h, h
		for _, c := range checks {
			handlers[path+"/"+c.Name] = h // for the list of paths at /
		}
	}
	if s.fairness != nil {
		s.registry.Metrics.MustRegister(metrics.FlowUses(s.fairness.Usage))
		handlers[fairness.DumpPath] = s.fairness.Dumps()
	}
	maps.Copy(handlers, s.handlers.Paths)
	s.handlers.Paths = handlers
}

// withGracePeriod wraps checks so that they succeed until a period is over.
func (s *Server) withGracePeriod(checks []health.Check, period time.Duration) []health.Check {
	if period == 0 {
		return checks
	}
	end := s.registry.Clock.Now().Add(period)
	all := make([]health.Check, len(checks))
	for i, c := range checks {
		all[i] = health.Check{Name: c.Name, Run: func(ctx context.Context) error {
			if s.registry.Clock.Now().Before(end) {
				return nil
			}
			return c.Run(ctx)
		}}
	}
	return all
}

// storeCheckTimeout bounds a health check of the store.
const storeCheckTimeout = 2 * time.Second

func (s *Server) checkStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeCheckTimeout)
	defer cancel()
	_, err := s.registry.Cache.Fresh(ctx)
	return err
}

var (
	errNotSynced    = errors.New("the cache has not been filled yet")
	errShuttingDown = errors.New("process is shutting down")
)

func (s *Server) checkSynced(context.Context) error {
	select {
	case <-s.registry.Cache.Synced():
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

// count is the default Observer. It counts the request in Metrics.
func (s *Server) count(a Answered) {
	// The end of its definition ends a watch, whose resource has no metrics any
	// more.
	a.Known = a.Known && (a.Info.Verb != "watch" || s.knows(a.Info))
	answer := metrics.Answer{
		Latency: s.registry.Clock.Since(a.Started), Elsewhere: a.Elsewhere, Read: a.Read, Written: a.Size,
		Dropped: a.Dropped, Deprecated: a.Deprecated, Removed: a.Removed,
	}
	s.registry.Metrics.Requests.Observe(counted(&a), answer)
}

// counted returns the metrics' labels of a request. It omits the names of
// resources that do not exist, because clients can invent any number of them.
func counted(a *Answered) metrics.Request {
	i := a.Info
	r := metrics.Request{Verb: i.Verb, DryRun: a.DryRun, Code: a.Code}
	if !i.IsResourceRequest && !isMethod(i.Verb) {
		r.Verb = "" // clients can invent methods, too
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

// isMethod reports whether the verb of a non-resource request is an HTTP method.
func isMethod(verb string) bool {
	switch verb {
	case "get", "head", "post", "put", "patch", "delete", "options", "connect", "trace":
		return true
	}
	return false
}

// beginLongRunning counts a long-running request until end is called.
func (s *Server) beginLongRunning(i *apirequest.RequestInfo) (end func()) {
	return s.registry.Metrics.Requests.Begin(counted(&Answered{Info: i, Known: s.knows(i)}))
}

// watchListed counts a watch that has sent all existing objects, unless the
// definition of its resource is gone.
func (s *Server) watchListed(began time.Time, i *apirequest.RequestInfo) {
	if s.knows(i) {
		s.registry.Metrics.Watches.Listed(counted(&Answered{Info: i, Known: true}), s.registry.Clock.Since(began))
	}
}

// knows reports whether the resource or subresource of a request is served.
func (s *Server) knows(i *apirequest.RequestInfo) bool {
	e := s.registry.Routes().Find(schema.GroupVersion{Group: i.APIGroup, Version: i.APIVersion}, i.Resource)
	return e != nil && (i.Subresource == "" || e.Resource.Subresource(i.Subresource) != nil)
}
