// Package poolstatus is the controller of ResourcePoolStatusRequests (KEP-5677). A request
// asks once how many devices the pools of a driver have and how many are free, which is
// otherwise spread over ResourceSlices, ResourceClaims and DeviceTaintRules. The controller
// answers in the status, and deletes requests some time later. It does nothing without the gate
// DRAResourcePoolStatus.
package poolstatus

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	resourcealpha "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcelisters "k8s.io/client-go/listers/resource/v1"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/nativehistogram"
)

const (
	// answeredFor and pendingFor are how long requests stay that have a status, and that
	// have none.
	answeredFor, pendingFor = time.Hour, 24 * time.Hour
	// settling is how long after its creation a request waits for pools of which drivers have
	// not published all slices, and recheck how often it looks.
	settling, recheck = 30 * time.Second, time.Second
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	counted := newCounts()
	return controller.Descriptor{
		Name:           "resourcepoolstatusrequest-controller",
		ServiceAccount: "resourcepoolstatusrequest-controller",
		EventSource:    "resourcepoolstatusrequest-controller",
		New: func(env *controller.Env) (controller.Controller, error) {
			return &answerer{env: env, counts: counted}, env.Expose(counted.processed, counted.failed, counted.duration)
		},
	}
}

// counts are the controller's metrics, with upstream's names. Their label is the driver. A request
// counts as processed whenever its answer is written, also if that fails.
type counts struct {
	processed, failed *prometheus.CounterVec
	duration          *prometheus.HistogramVec
}

func newCounts() *counts {
	const subsystem, label = "resourcepoolstatusrequest_controller", "driver_name"
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: "[ALPHA] " + help}, []string{label})
	}
	return &counts{
		processed: counter("requests_processed_total", "Total number of ResourcePoolStatusRequests processed"),
		failed:    counter("request_processing_errors_total", "Total number of errors encountered while processing ResourcePoolStatusRequests"),
		duration: nativehistogram.NewVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "request_processing_duration_seconds", Help: "[ALPHA] Time taken to process a ResourcePoolStatusRequest",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{label}),
	}
}

type answerer struct {
	env    *controller.Env
	counts *counts

	queue  *controller.Queue[string]
	slices resourcelisters.ResourceSliceLister
	claims resourcelisters.ResourceClaimLister
	rules  resourcelisters.DeviceTaintRuleLister // nil: they are not served
}

// Run implements controller.Controller. It does nothing where requests are not served.
func (c *answerer) Run(ctx context.Context) error {
	if served, err := c.env.WaitUnlessServed(ctx, resourcealpha.SchemeGroupVersion.WithResource("resourcepoolstatusrequests"), feature.DRAResourcePoolStatus); !served {
		return err
	}
	rulesServed, err := c.env.IsServed(ctx, resourceapi.SchemeGroupVersion.WithResource("devicetaintrules"), feature.DRADeviceTaintRules)
	if err != nil {
		return err
	}
	informers := c.env.Client.Informers.Resource()
	requests := informers.V1alpha3().ResourcePoolStatusRequests().Informer()
	c.slices, c.claims = informers.V1().ResourceSlices().Lister(), informers.V1().ResourceClaims().Lister()
	c.queue = controller.NewQueue(c.env.Queues, "resourcepoolstatusrequest", controller.Existing[string](requests, c.sync))
	sources := []controller.Source{
		controller.On(requests, func(_, r *resourcealpha.ResourcePoolStatusRequest) {
			if r != nil {
				c.queue.Add(r.Name)
			}
		}),
		controller.Reads(informers.V1().ResourceSlices().Informer()),
		controller.Reads(informers.V1().ResourceClaims().Informer()),
	}
	if rulesServed {
		c.rules = informers.V1().DeviceTaintRules().Lister()
		sources = append(sources, controller.Reads(informers.V1().DeviceTaintRules().Informer()))
	}
	return controller.Serve(ctx, sources, c.queue.Workers(1))
}

// expiry returns when a request is deleted.
func expiry(r *resourcealpha.ResourcePoolStatusRequest) time.Time {
	if r.Status == nil {
		return r.CreationTimestamp.Add(pendingFor)
	}
	for _, c := range r.Status.Conditions {
		if c.Type == resourcealpha.ResourcePoolStatusRequestConditionComplete || c.Type == resourcealpha.ResourcePoolStatusRequestConditionFailed {
			return c.LastTransitionTime.Add(answeredFor)
		}
	}
	return r.CreationTimestamp.Add(answeredFor)
}

func (c *answerer) sync(ctx context.Context, r *resourcealpha.ResourcePoolStatusRequest) error {
	now, api := time.Now(), c.env.Client.Kubernetes.ResourceV1alpha3().ResourcePoolStatusRequests()
	left := expiry(r).Sub(now)
	if left <= 0 {
		return controller.IgnoreNotFoundOrConflict(api.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}}))
	}
	if r.Status != nil || r.DeletionTimestamp != nil {
		c.queue.AddAfter(r.Name, left)
		return nil
	}
	s, err := c.snapshot()
	if err != nil {
		return err
	}
	status, incomplete := answer(&r.Spec, s, now)
	if incomplete && now.Before(r.CreationTimestamp.Add(settling)) {
		c.queue.AddAfter(r.Name, recheck)
		return nil
	}
	next := r.DeepCopy()
	next.Status = &status
	_, err = api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	c.counts.duration.WithLabelValues(r.Spec.Driver).Observe(time.Since(now).Seconds())
	c.counts.processed.WithLabelValues(r.Spec.Driver).Inc()
	if err != nil {
		c.counts.failed.WithLabelValues(r.Spec.Driver).Inc()
	}
	return controller.IgnoreNotFound(err)
}

// snapshot returns what the cache has of all devices.
func (c *answerer) snapshot() (s snapshot, err error) {
	if s.slices, err = c.slices.List(labels.Everything()); err != nil {
		return s, err
	}
	if s.claims, err = c.claims.List(labels.Everything()); err != nil {
		return s, err
	}
	if c.rules != nil {
		s.rules, err = c.rules.List(labels.Everything())
	}
	s.partitionTypes = c.env.Features.Enabled(feature.DRAPartitionableDevicesType)
	return s, err
}
