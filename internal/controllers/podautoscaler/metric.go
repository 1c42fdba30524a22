package podautoscaler

import (
	"context"
	"errors"
	"fmt"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
)

// proposal is the number of replicas that one metric asks for.
type proposal struct {
	replicas int32
	metric   string // what it is called in conditions and events
	status   autoscaling.MetricStatus
}

// failure is the failure of a metric.
type failure struct {
	condition string // reason of the condition ScalingActive and of the event
	detail    error  // message of the event
	prefix    string // of the detail, in the error of all metrics
}

func (f *failure) Error() string { return f.prefix + ": " + f.detail.Error() }

// workload is the target for which metrics are computed: its replicas, pods and
// readiness settings.
type workload struct {
	namespace    string
	spec, status int32 // replicas of the Scale
	selector     labels.Selector
	pods         []*v1.Pod // that the selector selects
	readiness
	tolerance
}

// propose computes the replicas that a metric asks for.
func (w *workload) propose(ctx context.Context, from source, m *autoscaling.MetricSpec) (*proposal, *failure) {
	switch {
	case m.Type == autoscaling.ResourceMetricSourceType && m.Resource != nil:
		p, current, err := w.resource(ctx, from, m.Resource.Name, "", m.Resource.Target)
		if err != nil {
			return nil, &failure{"FailedGetResourceMetric", err, fmt.Sprintf("failed to get %s resource metric value", m.Resource.Name)}
		}
		p.status = autoscaling.MetricStatus{Type: m.Type, Resource: &autoscaling.ResourceMetricStatus{Name: m.Resource.Name, Current: current}}
		return p, nil
	case m.Type == autoscaling.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		c := m.ContainerResource
		p, current, err := w.resource(ctx, from, c.Name, c.Container, c.Target)
		if err != nil {
			return nil, &failure{"FailedGetContainerResourceMetric", err, fmt.Sprintf("failed to get %s container metric value", c.Name)}
		}
		p.status = autoscaling.MetricStatus{Type: m.Type, ContainerResource: &autoscaling.ContainerResourceMetricStatus{Name: c.Name, Container: c.Container, Current: current}}
		return p, nil
	case m.Type == autoscaling.PodsMetricSourceType && m.Pods != nil && m.Pods.Target.AverageValue != nil:
		p, err := w.ofPods(from, m.Pods)
		if err != nil {
			return nil, &failure{"FailedGetPodsMetric", err, "failed to get pods metric value"}
		}
		return p, nil
	case m.Type == autoscaling.ObjectMetricSourceType && m.Object != nil:
		p, err := w.ofObject(from, m.Object)
		if err != nil {
			return nil, &failure{"FailedGetObjectMetric", err, "failed to get object metric value"}
		}
		return p, nil
	case m.Type == autoscaling.ExternalMetricSourceType && m.External != nil:
		p, err := w.external(from, m.External)
		if err != nil {
			return nil, &failure{"FailedGetExternalMetric", err, fmt.Sprintf("failed to get %s external metric value", m.External.Metric.Name)}
		}
		return p, nil
	}
	return nil, &failure{"InvalidMetricSourceType", &errSpec{fmt.Errorf("unknown metric source type %q", m.Type)}, "invalid metric"}
}

// resource computes replicas from what pods, or one container of each, use.
func (w *workload) resource(ctx context.Context, from source, name v1.ResourceName, container string, t autoscaling.MetricTarget) (*proposal, autoscaling.MetricValueStatus, error) {
	var none autoscaling.MetricValueStatus
	if t.AverageValue == nil && t.AverageUtilization == nil {
		return nil, none, &errSpec{errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")}
	}
	what := "usage"
	if t.AverageValue == nil {
		what = "utilization"
	}
	have, err := from.resource(ctx, name, w.namespace, w.selector, container)
	if err != nil {
		return nil, none, fmt.Errorf("failed to get %s %s: unable to get metrics for resource %s: %w", name, what, name, err)
	}
	c := w.metricReplicas(have)
	c.cpu = name == v1.ResourceCPU
	called := fmt.Sprintf("%s resource", name)
	if t.AverageValue != nil {
		c.ratio, c.most = average(t.AverageValue.MilliValue()), func(string) int64 { return t.AverageValue.MilliValue() }
	} else {
		requests, err := requestsOf(w.pods, name, container)
		if err != nil {
			return nil, none, fmt.Errorf("failed to get %s utilization: %w", name, err)
		}
		full := int64(max(100, *t.AverageUtilization))
		c.ratio, c.most = utilization(requests, *t.AverageUtilization), func(pod string) int64 { return requests[pod] * full / 100 }
		called += " utilization (percentage of request)"
	}
	replicas, show, err := c.replicas()
	if err != nil {
		return nil, none, fmt.Errorf("failed to get %s %s: %w", name, what, err)
	}
	current := autoscaling.MetricValueStatus{AverageValue: milli(show.milli)}
	if name == v1.ResourceMemory {
		current.AverageValue = resource.NewMilliQuantity(show.milli, resource.BinarySI)
	}
	if t.AverageValue == nil {
		current.AverageUtilization = &show.utilization
	}
	return &proposal{replicas: replicas, metric: called}, current, nil
}

func (w *workload) metricReplicas(have samples) *metricReplicas {
	return &metricReplicas{current: w.spec, pods: w.pods, have: have, readiness: w.readiness, tolerance: w.tolerance}
}

func (w *workload) ofPods(from source, m *autoscaling.PodsMetricSource) (*proposal, error) {
	have, err := from.ofPods(w.namespace, w.selector, m.Metric)
	if err != nil {
		return nil, fmt.Errorf("unable to get metric %s: %w", m.Metric.Name, err)
	}
	target := m.Target.AverageValue.MilliValue()
	c := w.metricReplicas(have)
	c.ratio, c.most = average(target), func(string) int64 { return target }
	replicas, show, err := c.replicas()
	if err != nil {
		return nil, err
	}
	return &proposal{replicas, "pods metric " + m.Metric.Name, autoscaling.MetricStatus{
		Type: autoscaling.PodsMetricSourceType,
		Pods: &autoscaling.PodsMetricStatus{Metric: m.Metric, Current: autoscaling.MetricValueStatus{AverageValue: milli(show.milli)}},
	}}, nil
}

func (w *workload) ofObject(from source, m *autoscaling.ObjectMetricSource) (*proposal, error) {
	measured, err := from.ofObject(w.namespace, m.DescribedObject, m.Metric)
	if err != nil {
		return nil, fmt.Errorf("unable to get metric %s on %s %s/%s: %w", m.Metric.Name, m.DescribedObject.Kind, w.namespace, m.DescribedObject.Name, err)
	}
	replicas, current, err := w.ofWhole(measured, m.Target)
	if err != nil {
		return nil, err
	}
	return &proposal{replicas, fmt.Sprintf("%s metric %s", m.DescribedObject.Kind, m.Metric.Name), autoscaling.MetricStatus{
		Type:   autoscaling.ObjectMetricSourceType,
		Object: &autoscaling.ObjectMetricStatus{DescribedObject: m.DescribedObject, Metric: m.Metric, Current: current},
	}}, nil
}

func (w *workload) external(from source, m *autoscaling.ExternalMetricSource) (*proposal, error) {
	measured, err := from.external(w.namespace, m.Metric)
	if err != nil {
		return nil, fmt.Errorf("unable to get external metric %s/%s/%+v: %w", w.namespace, m.Metric.Name, m.Metric.Selector, err)
	}
	replicas, current, err := w.ofWhole(measured, m.Target)
	if err != nil {
		return nil, err
	}
	return &proposal{replicas, fmt.Sprintf("external metric %s(%+v)", m.Metric.Name, m.Metric.Selector), autoscaling.MetricStatus{
		Type:     autoscaling.ExternalMetricSourceType,
		External: &autoscaling.ExternalMetricStatus{Metric: m.Metric, Current: current},
	}}, nil
}

// ofWhole computes replicas from a measurement of the whole: for a value, or
// for the average of each replica. If there are targets of both kinds, the type
// decides.
func (w *workload) ofWhole(measured int64, t autoscaling.MetricTarget) (int32, autoscaling.MetricValueStatus, error) {
	c := &objectReplicas{milli: measured, spec: w.spec, now: w.status, pods: w.pods, tolerance: w.tolerance}
	switch {
	case t.AverageValue != nil && (t.Value == nil || t.Type != autoscaling.ValueMetricType):
		replicas, share := c.forAverage(t.AverageValue.MilliValue())
		return replicas, autoscaling.MetricValueStatus{AverageValue: milli(share)}, nil
	case t.Value != nil:
		replicas, err := c.forValue(t.Value.MilliValue())
		return replicas, autoscaling.MetricValueStatus{Value: milli(measured)}, err
	}
	return 0, autoscaling.MetricValueStatus{}, &errSpec{errors.New("invalid metric source: neither a value target nor an average value target was set")}
}

func milli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }
