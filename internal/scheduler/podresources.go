package scheduler

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

var (
	podRequest = prometheus.NewDesc("kube_pod_resource_request", "[STABLE] Resources requested by workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along with the unit for the resource if any.", podResourceLabels(), nil)
	podLimit   = prometheus.NewDesc("kube_pod_resource_limit", "[STABLE] Resources limit for workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along with the unit for the resource if any.", podResourceLabels(), nil)
)

func podResourceLabels() []string {
	return []string{"namespace", "pod", "node", "scheduler", "priority", "resource", "unit"}
}

// ResourcesHandler serves what the pods request and may use at most, as upstream
// does at /metrics/resources (KEP-1748). Pods that have ended do not count. A
// scheduler that is not the leader knows no pods.
func (m *Metrics) ResourcesHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(podResources{m})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// podResources implements prometheus.Collector over the pods of the schedulers
// that run.
type podResources struct{ metrics *Metrics }

// Describe implements prometheus.Collector.
func (podResources) Describe(out chan<- *prometheus.Desc) {
	out <- podRequest
	out <- podLimit
}

// Collect implements prometheus.Collector.
func (r podResources) Collect(out chan<- prometheus.Metric) {
	r.metrics.running.Range(func(key, _ any) bool {
		s := key.(*Scheduler)
		onNodes := map[types.UID]bool{}
		for pod, node := range s.cache.Pods() {
			onNodes[pod.UID] = true
			collectPod(out, pod, node)
		}
		for _, pod := range s.queue.Pods() {
			if !onNodes[pod.UID] { // it may be about to be bound
				collectPod(out, pod, "")
			}
		}
		return true
	})
}

func collectPod(out chan<- prometheus.Metric, pod *v1.Pod, node string) {
	priority := ""
	if pod.Spec.Priority != nil {
		priority = strconv.Itoa(int(*pod.Spec.Priority))
	}
	scheduler := strings.ToValidUTF8(pod.Spec.SchedulerName, "\uFFFD") // any bytes, which would panic here
	for _, one := range []struct {
		desc *prometheus.Desc
		list v1.ResourceList
	}{
		{podRequest, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})},
		{podLimit, resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})},
	} {
		for name, amount := range one.list {
			if !amount.IsZero() {
				out <- prometheus.MustNewConstMetric(one.desc, prometheus.GaugeValue, amount.AsApproximateFloat64(),
					pod.Namespace, pod.Name, node, scheduler, priority, string(name), unitOf(name))
			}
		}
	}
}

// unitOf returns upstream's word for the unit of a resource.
func unitOf(name v1.ResourceName) string {
	switch {
	case name == v1.ResourceCPU:
		return "cores"
	case name == v1.ResourceMemory, name == v1.ResourceStorage, name == v1.ResourceEphemeralStorage, strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
		return "bytes"
	}
	return "integer"
}
