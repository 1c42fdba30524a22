package aggregator

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// reportLocal sets the condition of an APIService without a Service to
// available.
func (s *Server) reportLocal(ctx context.Context, e *watchcache.Entry) {
	local := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue,
		Reason: "Local", Message: "Local APIServices are always available",
	}
	err := s.report(ctx, e.Name, local, func(service *apiregistrationv1.APIService) bool { return service.Spec.Service == nil })
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot write the status of an APIService yet", "apiService", e.Name)
		s.retry(ctx)
	}
}

// report writes the condition Available of an APIService if it differs and the
// APIService satisfies wanted.
func (s *Server) report(ctx context.Context, name string, c apiregistrationv1.APIServiceCondition, wanted func(*apiregistrationv1.APIService) bool) error {
	c.LastTransitionTime = resource.Seconds(s.Clock.Now())
	changed := false
	err := s.writer().UpdateStatus(ctx, s.kind, "", name, fieldManager, func(current resource.Object) (resource.Object, error) {
		have := current.(*apiregistrationv1.APIService)
		conditions := withCondition(have.Status.Conditions, c)
		if changed = conditions != nil && wanted(have); !changed {
			return nil, nil
		}
		next := have.DeepCopy()
		next.Status.Conditions = conditions
		return next, nil
	})
	if changed && s.Unavailable != nil && c.Status != apiregistrationv1.ConditionTrue {
		s.Unavailable.WithLabelValues(name, c.Reason).Inc()
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *Server) writer() registry.Writer {
	return registry.Writer{Managers: s.Managers, Clock: s.Clock}
}

// fieldManager owns the fields that the API server writes into an APIService's
// status.
const fieldManager = "kube-apiserver"

// withCondition returns the conditions with c added or replaced, or nil if c is
// there already. Its transition time changes only with its status.
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

func unavailableDesc() *prometheus.Desc {
	return prometheus.NewDesc("aggregator_unavailable_apiservice", "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.", []string{"name"}, nil)
}

// Describe implements prometheus.Collector.
func (*Server) Describe(out chan<- *prometheus.Desc) { out <- unavailableDesc() }

// Collect implements prometheus.Collector.
func (s *Server) Collect(out chan<- prometheus.Metric) {
	kind := s.Cache.At(objects.APIServices)
	if kind == nil {
		return
	}
	desc := unavailableDesc()
	kind.Snapshot().Ascend("", watchcache.Position{}, func(e *watchcache.Entry) bool {
		value := 0.0
		if !isAvailable(e.Object.(*apiregistrationv1.APIService)) {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, e.Name)
		return true
	})
}

func isAvailable(service *apiregistrationv1.APIService) bool {
	c := available(service)
	return c != nil && c.Status == apiregistrationv1.ConditionTrue
}

// available returns the condition Available; nil if there is none.
func available(service *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	for i := range service.Status.Conditions {
		if c := &service.Status.Conditions[i]; c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return nil
}
