package pod

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/podquery"
)

// metrics counts the work of the workers under upstream's names.
type metrics struct {
	startDuration  prometheus.Histogram
	workerDuration *prometheus.HistogramVec // by operation_type

	// Attempts to start something, also those that failed, and how many of them failed.
	startedContainers                                   *prometheus.CounterVec // by container_type
	failedContainers                                    *prometheus.CounterVec // by code and container_type
	startedPods, failedPods                             prometheus.Counter
	startedUserNamespacedPods, failedUserNamespacedPods prometheus.Counter

	// Image volumes of containers that are to start: requested, and mounted or not by
	// the runtime when it creates the container.
	imagesRequested, imagesMounted, imagesFailed prometheus.Counter

	terminated *prometheus.CounterVec // by container_type, exit_code and reason
	rejections *prometheus.CounterVec // by reason
	preempted  *prometheus.CounterVec // by the resource for which, as preemption_signal

	// What it took the runtime to run sandboxes, and how many it could not, by handler.
	sandboxDuration *prometheus.HistogramVec
	sandboxErrors   *prometheus.CounterVec

	orphanedPods  prometheus.Counter
	restartedPods *prometheus.CounterVec // by static

	resizes  *resizeMetrics
	startups *startups
}

// startBuckets are the bounds of histograms of starts of pods, in seconds.
func startBuckets() []float64 {
	return []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help})
	}
	m := &metrics{
		startDuration: nativehistogram.New(prometheus.HistogramOpts{Name: "kubelet_pod_start_duration_seconds", Help: "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
			Buckets: startBuckets()}),
		workerDuration: nativehistogram.NewVec(prometheus.HistogramOpts{Name: "kubelet_pod_worker_duration_seconds", Help: "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
			Buckets: prometheus.DefBuckets}, []string{"operation_type"}),
		startedContainers:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_started_containers_total", Help: "[ALPHA] Cumulative number of containers started"}, []string{"container_type"}),
		failedContainers:          prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_started_containers_errors_total", Help: "[ALPHA] Cumulative number of errors when starting containers"}, []string{"code", "container_type"}),
		startedPods:               counter("started_pods_total", "[ALPHA] Cumulative number of pods started"),
		failedPods:                counter("started_pods_errors_total", "[ALPHA] Cumulative number of errors when starting pods"),
		startedUserNamespacedPods: counter("started_user_namespaced_pods_total", "[ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on Linux."),
		failedUserNamespacedPods:  counter("started_user_namespaced_pods_errors_total", "[ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux."),
		imagesRequested:           counter("image_volume_requested_total", "[BETA] Number of requested image volumes."),
		imagesMounted:             counter("image_volume_mounted_succeed_total", "[BETA] Number of successful image volume mounts."),
		imagesFailed:              counter("image_volume_mounted_errors_total", "[BETA] Number of failed image volume mounts."),
		terminated: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_terminated_containers_total", Help: "[ALPHA] Cumulative number of container terminations."},
			[]string{"container_type", "exit_code", "reason"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_admission_rejections_total", Help: "[ALPHA] Cumulative number pod admission rejections by the Kubelet."},
			[]string{"reason"}),
		preempted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_preemptions", Help: "[ALPHA] Cumulative number of pod preemptions by preemption resource"},
			[]string{"preemption_signal"}),
		sandboxDuration: nativehistogram.NewVec(prometheus.HistogramOpts{Name: "kubelet_run_podsandbox_duration_seconds",
			Help: "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.", Buckets: prometheus.DefBuckets}, []string{"runtime_handler"}),
		sandboxErrors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_run_podsandbox_errors_total",
			Help: "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler."}, []string{"runtime_handler"}),
		orphanedPods: counter("orphaned_runtime_pods_total", "[ALPHA] Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual."),
		restartedPods: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_restarted_pods_total",
			Help: "[ALPHA] Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)"},
			[]string{"static"}),
		resizes:  newResizeMetrics(),
		startups: newStartups(),
	}
	for _, static := range []bool{true, false} {
		m.restartedPods.WithLabelValues(staticLabel(static)) // which shows it as 0
	}
	r.MustRegister(m.startDuration, m.workerDuration, m.startedContainers, m.failedContainers, m.startedPods, m.failedPods, m.startedUserNamespacedPods, m.failedUserNamespacedPods,
		m.imagesRequested, m.imagesMounted, m.imagesFailed, m.terminated, m.rejections, m.preempted, m.sandboxDuration, m.sandboxErrors, m.orphanedPods, m.restartedPods, m.resizes.requested, m.resizes.infeasible, m.resizes.accepted, m.resizes.duration,
		m.startups.total, m.startups.indicator)
	return m
}

// rejected counts a pod that the node does not run.
func (m *metrics) rejected(reason string) {
	m.rejections.WithLabelValues(rejectionLabel(reason)).Inc()
}

// rejectionLabel returns the label of a reason for which a pod was rejected. Extended
// resources have one together, and so have all reasons that upstream does not list.
func rejectionLabel(reason string) string {
	switch reason {
	case "AppArmor", "Evicted", "NodeShutdown", "OutOfcpu", "OutOfephemeral-storage", "OutOfmemory", "OutOfpods", "PodOSNotSupported",
		"PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TopologyAffinityError",
		"UnexpectedAdmissionError", "VolumeAttachmentLimitExceeded":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}

// started counts an attempt to create the sandbox of a pod, and whether it failed.
func (m *metrics) started(pod *v1.Pod, failed bool) {
	userNamespaced := podquery.HasUserNamespace(&pod.Spec)
	m.startedPods.Inc()
	if failed {
		m.failedPods.Inc()
	}
	if userNamespaced {
		m.startedUserNamespacedPods.Inc()
	}
	if userNamespaced && failed {
		m.failedUserNamespacedPods.Inc()
	}
}

// failedInSandbox counts a pod whose new sandbox there is, and whose containers did not
// all start: most user namespaces fail only there.
func (m *metrics) failedInSandbox(pod *v1.Pod) {
	if podquery.HasUserNamespace(&pod.Spec) {
		m.failedUserNamespacedPods.Inc()
	}
}

// mounted counts the image volumes of a container that the runtime created, or did not.
func (m *metrics) mounted(config *runtimeapi.ContainerConfig, err error) {
	result := m.imagesMounted
	if err != nil {
		result = m.imagesFailed
	}
	for _, mount := range config.GetMounts() {
		if mount.GetImage().GetImage() != "" {
			result.Inc()
		}
	}
}

// ended counts the containers of a pod that have ended since it was observed before,
// which is nil at first. Those that ended before the kubelet started were counted by
// an earlier one.
func (m *metrics) ended(pod *v1.Pod, before, now *cri.Pod, started time.Time) {
	for _, c := range now.Containers {
		if c.State != cri.Exited || !c.FinishedAt.After(started) {
			continue
		}
		if before != nil {
			if known := before.FindID(c.ID); known != nil && known.State == cri.Exited {
				continue
			}
		}
		code := "other"
		if c.ExitCode >= 0 && c.ExitCode <= 255 { // what a process can exit with
			code = strconv.Itoa(int(c.ExitCode))
		}
		m.terminated.WithLabelValues(typeOf(&pod.Spec, c.Name), code, c.Reason).Inc()
	}
}

// typeOf returns upstream's name of the kind of a container.
func typeOf(pod *v1.PodSpec, container string) string {
	for i := range pod.InitContainers {
		if pod.InitContainers[i].Name == container {
			return "init_container"
		}
	}
	for i := range pod.EphemeralContainers {
		if pod.EphemeralContainers[i].Name == container {
			return "ephemeral_container"
		}
	}
	return "container"
}
