package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func zero() resource.Quantity { return resource.Quantity{} }

func averageTarget(utilization *int32, value *resource.Quantity) autoscalingv2.MetricTarget {
	kind := autoscalingv2.AverageValueMetricType
	if utilization != nil {
		kind = autoscalingv2.UtilizationMetricType
	}
	return autoscalingv2.MetricTarget{Type: kind, AverageUtilization: utilization, AverageValue: value}
}

func statusToV1(m *autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(m.Type)}
	if o := m.Object; o != nil {
		out.Object = &autoscalingv1.ObjectMetricStatus{
			Target: autoscalingv1.CrossVersionObjectReference(o.DescribedObject), MetricName: o.Metric.Name,
			CurrentValue: ptr.Deref(o.Current.Value, zero()), Selector: o.Metric.Selector, AverageValue: o.Current.AverageValue,
		}
	}
	if p := m.Pods; p != nil {
		out.Pods = &autoscalingv1.PodsMetricStatus{
			MetricName: p.Metric.Name, CurrentAverageValue: ptr.Deref(p.Current.AverageValue, zero()), Selector: p.Metric.Selector,
		}
	}
	if r := m.Resource; r != nil {
		out.Resource = &autoscalingv1.ResourceMetricStatus{
			Name: r.Name, CurrentAverageUtilization: r.Current.AverageUtilization,
			CurrentAverageValue: ptr.Deref(r.Current.AverageValue, zero()),
		}
	}
	if c := m.ContainerResource; c != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
			Name: c.Name, Container: c.Container, CurrentAverageUtilization: c.Current.AverageUtilization,
			CurrentAverageValue: ptr.Deref(c.Current.AverageValue, zero()),
		}
	}
	if e := m.External; e != nil {
		out.External = &autoscalingv1.ExternalMetricStatus{
			MetricName: e.Metric.Name, MetricSelector: e.Metric.Selector,
			CurrentValue: ptr.Deref(e.Current.Value, zero()), CurrentAverageValue: e.Current.AverageValue,
		}
	}
	return out
}

func statusFromV1(m *autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(m.Type)}
	if o := m.Object; o != nil {
		out.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(o.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: o.MetricName, Selector: o.Selector},
			Current:         autoscalingv2.MetricValueStatus{Value: &o.CurrentValue, AverageValue: o.AverageValue},
		}
	}
	if p := m.Pods; p != nil {
		out.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: p.MetricName, Selector: p.Selector},
			Current: autoscalingv2.MetricValueStatus{AverageValue: &p.CurrentAverageValue},
		}
	}
	if r := m.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{Name: r.Name, Current: autoscalingv2.MetricValueStatus{
			AverageUtilization: r.CurrentAverageUtilization, AverageValue: &r.CurrentAverageValue,
		}}
	}
	if c := m.ContainerResource; c != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
			Name: c.Name, Container: c.Container, Current: autoscalingv2.MetricValueStatus{
				AverageUtilization: c.CurrentAverageUtilization, AverageValue: &c.CurrentAverageValue,
			},
		}
	}
	if e := m.External; e != nil {
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: e.MetricName, Selector: e.MetricSelector},
			Current: autoscalingv2.MetricValueStatus{Value: &e.CurrentValue, AverageValue: e.CurrentAverageValue},
		}
	}
	return out
}
