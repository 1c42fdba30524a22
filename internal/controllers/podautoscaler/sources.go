package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"

	"github.com/coracle-io/coracle/internal/client"
)

// source reads metrics.
type source interface {
	// resource returns what the selected pods use, or one of their containers
	// does if container is not "".
	resource(ctx context.Context, name v1.ResourceName, namespace string, pods labels.Selector, container string) (samples, error)
	// ofPods returns a custom metric of the selected pods.
	ofPods(namespace string, pods labels.Selector, metric autoscaling.MetricIdentifier) (samples, error)
	// ofObject returns a custom metric of an object, in thousandths.
	ofObject(namespace string, object autoscaling.CrossVersionObjectReference, metric autoscaling.MetricIdentifier) (int64, error)
	// external returns the sum of an external metric, in thousandths.
	external(namespace string, metric autoscaling.MetricIdentifier) (int64, error)
}

// apis are the three metrics APIs.
type apis struct {
	resources resourceclient.MetricsV1beta1Interface
	custom    custom_metrics.CustomMetricsClient
	versions  custom_metrics.AvailableAPIsGetter // of the custom metrics API
	others    external_metrics.ExternalMetricsClient
}

// requestTimeout bounds a request to a metrics API, which may be another server.
const requestTimeout = 30 * time.Second

func newAPIs(c *client.Client, mapper meta.RESTMapper) (*apis, error) {
	config := rest.CopyConfig(c.Config)
	config.Timeout = requestTimeout
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return checkedAnswers{next} })
	resources, err := resourceclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of metrics.k8s.io: %w", err)
	}
	others, err := external_metrics.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of external.metrics.k8s.io: %w", err)
	}
	versions := custom_metrics.NewAvailableAPIsGetter(c.Kubernetes.Discovery())
	return &apis{resources, custom_metrics.NewForConfig(config, mapper, versions), versions, others}, nil
}

func (a *apis) resource(ctx context.Context, name v1.ResourceName, namespace string, pods labels.Selector, container string) (samples, error) {
	list, err := a.resources.PodMetricses(namespace).List(ctx, metav1.ListOptions{LabelSelector: pods.String()})
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	all := samples{}
	for i := range list.Items {
		m := &list.Items[i]
		s := sample{at: m.Timestamp.Time, window: m.Window.Duration}
		used, there, complete := usedBy(m, name, container)
		if !there {
			return nil, fmt.Errorf("container %s not present in metrics for pod %s/%s", container, m.Namespace, m.Name)
		}
		if complete {
			s.milli = used
			all[m.Name] = s
		}
	}
	return all, nil
}

// usedBy returns what a pod or one of its containers uses. there reports whether
// the container has metrics, and complete whether every container that counts
// reports the resource.
func usedBy(m *v1beta1.PodMetrics, name v1.ResourceName, container string) (milli int64, there, complete bool) {
	complete = len(m.Containers) > 0
	for i := range m.Containers {
		c := &m.Containers[i]
		if container != "" && c.Name != container {
			continue
		}
		there = true
		q, ok := c.Usage[name]
		complete = complete && ok
		milli += q.MilliValue()
	}
	return milli, there || container == "", complete
}

// defaultWindow is the window of custom metrics that do not say it.
const defaultWindow = time.Minute

func (a *apis) ofPods(namespace string, pods labels.Selector, metric autoscaling.MetricIdentifier) (samples, error) {
	selector, err := selectorOf(metric)
	if err != nil {
		return nil, err
	}
	list, err := a.custom.NamespacedMetrics(namespace).GetForObjects(schema.GroupKind{Kind: "Pod"}, pods, metric.Name, selector)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	all := samples{}
	for i := range list.Items {
		m := &list.Items[i]
		s := sample{milli: m.Value.MilliValue(), at: m.Timestamp.Time, window: defaultWindow}
		if m.WindowSeconds != nil {
			s.window = time.Duration(*m.WindowSeconds) * time.Second
		}
		all[m.DescribedObject.Name] = s
	}
	return all, nil
}

func (a *apis) ofObject(namespace string, object autoscaling.CrossVersionObjectReference, metric autoscaling.MetricIdentifier) (int64, error) {
	selector, err := selectorOf(metric)
	if err != nil {
		return 0, err
	}
	kind := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind()
	get := a.custom.NamespacedMetrics(namespace).GetForObject
	if kind.Kind == "Namespace" && kind.Group == "" { // of the namespace of the autoscaler
		get, object.Name = a.custom.RootScopedMetrics().GetForObject, namespace
	}
	value, err := get(kind, object.Name, metric.Name, selector)
	if err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	return value.Value.MilliValue(), nil
}

func (a *apis) external(namespace string, metric autoscaling.MetricIdentifier) (sum int64, err error) {
	selector, err := selectorOf(metric)
	if err != nil {
		return 0, err
	}
	list, err := a.others.NamespacedMetrics(namespace).List(metric.Name, selector)
	if err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return 0, errors.New("no metrics returned from external metrics API")
	}
	for i := range list.Items {
		sum += list.Items[i].Value.MilliValue()
	}
	return sum, nil
}

// selectorOf returns the selector of a metric; none selects everything.
func selectorOf(metric autoscaling.MetricIdentifier) (labels.Selector, error) {
	if metric.Selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(metric.Selector)
}
