package podgc

import "github.com/prometheus/client_golang/prometheus"

// Why pods are deleted, as upstream's metrics name it.
const (
	reasonTerminated   = "terminated"     // there are too many finished pods
	reasonOrphaned     = "orphaned"       // the node is gone
	reasonOutOfService = "out-of-service" // the pod is being deleted and its node is out of service
	reasonUnscheduled  = "unscheduled"    // the pod is being deleted and was never scheduled
)

// counts are the controller's metrics, with upstream's names: the pods that it tries to
// delete, and the attempts that fail.
type counts struct{ deleted, failed *prometheus.CounterVec }

func newCounts() *counts {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "pod_gc_collector", Name: name, Help: "[ALPHA] " + help}, []string{"namespace", "reason"})
	}
	return &counts{
		deleted: counter("force_delete_pods_total", "Number of pods that are being forcefully deleted since the Pod GC Controller started."),
		failed:  counter("force_delete_pod_errors_total", "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started."),
	}
}
