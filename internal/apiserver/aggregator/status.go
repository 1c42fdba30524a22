package aggregator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// settleLocal says of an APIService without a Service that it is available.
func (s *Server) settleLocal(ctx context.Context, e *watchcache.Entry) {
	local := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue,
		Reason: "Local", Message: "Local APIServices are always available",
	}
	err := s.report(ctx, e, local)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return // its event comes
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot write the status of an APIService yet", "apiService", e.Name)
		s.retry(ctx)
	}
}

// report writes an APIService's Available condition, unless it is there.
func (s *Server) report(ctx context.Context, e *watchcache.Entry, c apiregistrationv1.APIServiceCondition) error {
	have := e.Object.(*apiregistrationv1.APIService)
	c.LastTransitionTime = metav1.NewTime(s.Clock.Now().Truncate(time.Second))
	status := withCondition(have.Status.Conditions, c)
	if status == nil {
		return nil
	}
	if s.Unavailable != nil && c.Status != apiregistrationv1.ConditionTrue {
		s.Unavailable.WithLabelValues(have.Name, c.Reason).Inc()
	}
	next := have.DeepCopy()
	next.Status.Conditions = status
	if s.Managers != nil {
		r := s.kind.Resource()
		if err := s.Managers.Update(registry.ManagedKind{Resource: r, Version: r.Hub(), Subresource: "status"}, have, next, fieldManager); err != nil {
			return err
		}
	}
	_, err := s.kind.Update(ctx, next, e)
	return err
}

// fieldManager owns what the API server writes into an APIService's status.
const fieldManager = "kube-apiserver"

// withCondition returns the conditions with c among them; nil if it is there
// as it should be. The time of the last transition changes with the status only.
func withCondition(have []apiregistrationv1.APIServiceCondition, c apiregistrationv1.APIServiceCondition) []apiregistrationv1.APIServiceCondition {
	next := slices.Clone(have)
	for i := range next {
		if next[i].Type != c.Type {
			continue
		}
		if next[i].Status == c.Status {
			c.LastTransitionTime = next[i].LastTransitionTime
		}
		if next[i] == c {
			return nil
		}
		next[i] = c
		return next
	}
	return append(next, c)
}

var unavailableService = prometheus.NewDesc("aggregator_unavailable_apiservice", "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.", []string{"name"}, nil)

// Describe implements prometheus.Collector.
func (*Server) Describe(out chan<- *prometheus.Desc) { out <- unavailableService }

// Collect implements prometheus.Collector: which APIServices are unavailable.
func (s *Server) Collect(out chan<- prometheus.Metric) {
	kind := s.Cache.At(objects.APIServices)
	if kind == nil {
		return
	}
	kind.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		value := 0.0
		if !isAvailable(e.Object.(*apiregistrationv1.APIService)) {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(unavailableService, prometheus.GaugeValue, value, e.Name)
		return true
	})
}

func isAvailable(service *apiregistrationv1.APIService) bool {
	c := available(service)
	return c != nil && c.Status == apiregistrationv1.ConditionTrue
}

// available is the condition that says whether the service is; nil if there
// is none.
func available(service *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	for i := range service.Status.Conditions {
		if c := &service.Status.Conditions[i]; c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return nil
}
