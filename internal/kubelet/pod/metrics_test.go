package pod

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
)

// Attempts to start pods are counted also if they fail, and those with user namespaces
// once more by themselves.
func TestStartedPods(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(registry)
	plain, mapped := &v1.Pod{}, &v1.Pod{Spec: v1.PodSpec{HostUsers: new(false)}}
	m.started(plain, false)
	m.started(plain, true)
	m.started(mapped, false)
	m.started(mapped, true)
	m.started(mapped, true)
	const want = `
# HELP kubelet_started_pods_errors_total [ALPHA] Cumulative number of errors when starting pods
# TYPE kubelet_started_pods_errors_total counter
kubelet_started_pods_errors_total 3
# HELP kubelet_started_pods_total [ALPHA] Cumulative number of pods started
# TYPE kubelet_started_pods_total counter
kubelet_started_pods_total 5
# HELP kubelet_started_user_namespaced_pods_errors_total [ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.
# TYPE kubelet_started_user_namespaced_pods_errors_total counter
kubelet_started_user_namespaced_pods_errors_total 2
# HELP kubelet_started_user_namespaced_pods_total [ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.
# TYPE kubelet_started_user_namespaced_pods_total counter
kubelet_started_user_namespaced_pods_total 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_started_pods_errors_total", "kubelet_started_pods_total",
		"kubelet_started_user_namespaced_pods_errors_total", "kubelet_started_user_namespaced_pods_total"); err != nil {
		t.Error(err)
	}
}

// Reasons of rejections have a bounded number of labels.
func TestRejectionLabels(t *testing.T) {
	for reason, want := range map[string]string{
		"OutOfcpu": "OutOfcpu", "OutOfpods": "OutOfpods", "OutOfephemeral-storage": "OutOfephemeral-storage", "Evicted": "Evicted",
		"TopologyAffinityError": "TopologyAffinityError", "OutOfexample.com/gpu": "OutOfExtendedResources", "OutOfhugepages-2Mi": "OutOfExtendedResources",
		"NodePorts": "Other", "TooManyContainers": "Other", "": "Other",
	} {
		if got := rejectionLabel(reason); got != want {
			t.Errorf("%q is counted as %q, want %q", reason, got, want)
		}
	}
}
