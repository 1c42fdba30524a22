package core_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

var noon = time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// Every kind has as many cells as columns, also for an empty object.
func TestRowsFillColumns(t *testing.T) {
	for _, r := range core.Resources() {
		if cells := r.Row(r.Hub().New(), noon); len(cells) != len(r.Columns) {
			t.Errorf("%s: %d cells for %d columns", r.Plural, len(cells), len(r.Columns))
		}
	}
}

func TestPodStatusColumn(t *testing.T) {
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	yes, always := true, corev1.ContainerRestartPolicyAlways

	for name, test := range map[string]struct {
		pod                     corev1.Pod
		ready, status, restarts string
	}{
		"pending": {
			pod:   corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}},
			ready: "0/1", status: "Pending", restarts: "0",
		},
		"gated": {
			pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Reason: corev1.PodReasonSchedulingGated}}}},
			ready: "0/1", status: "SchedulingGated", restarts: "0",
		},
		"evicted": {
			pod:   corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}},
			ready: "0/1", status: "Evicted", restarts: "0",
		},
		"creating": {
			pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{State: waiting("ContainerCreating")}}}},
			ready: "0/1", status: "ContainerCreating", restarts: "0",
		},
		"running": {
			pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{State: running, Ready: true}}}},
			ready: "1/1", status: "Running", restarts: "0",
		},
		"crashing": {
			pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				State: waiting("CrashLoopBackOff"), RestartCount: 3,
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago(5 * time.Minute)}},
			}}}},
			ready: "0/1", status: "CrashLoopBackOff", restarts: "3 (5m ago)",
		},
		"ended without a reason": {
			pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
				{State: ended(3, "")}}}},
			ready: "0/1", status: "ExitCode:3", restarts: "0",
		},
		"initializing": {
			pod: corev1.Pod{
				Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{
					{Name: "a", State: ended(0, "Completed")}, {Name: "b", State: running}}},
			},
			ready: "0/1", status: "Init:1/2", restarts: "0",
		},
		"initialization failed": {
			pod: corev1.Pod{
				Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "a"}}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{
					{Name: "a", State: ended(1, "Error"), RestartCount: 2}}},
			},
			ready: "0/1", status: "Init:Error", restarts: "2",
		},
		"sidecar counts": {
			pod: corev1.Pod{
				Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "s", RestartPolicy: &always}}},
				Status: corev1.PodStatus{
					Phase:                 corev1.PodRunning,
					InitContainerStatuses: []corev1.ContainerStatus{{Name: "s", State: running, Ready: true, Started: &yes}},
					ContainerStatuses:     []corev1.ContainerStatus{{State: running, Ready: true}},
				},
			},
			ready: "2/2", status: "Running", restarts: "0",
		},
		"terminating": {
			pod: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: noon}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{State: running, Ready: true}}},
			},
			ready: "1/1", status: "Terminating", restarts: "0",
		},
		"node lost": {
			pod: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: noon}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, Reason: "NodeLost"},
			},
			ready: "0/1", status: "Unknown", restarts: "0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.pod.Name = "p"
			test.pod.CreationTimestamp = ago(time.Hour)
			test.pod.Spec.Containers = []corev1.Container{{Name: "c"}}
			want := []any{"p", test.ready, test.status, test.restarts, "60m", "<none>", "<none>", "<none>", "<none>"}
			if diff := cmp.Diff(want, core.Pods().Row(&test.pod, noon)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestServiceRow(t *testing.T) {
	row := func(spec corev1.ServiceSpec, ingress ...corev1.LoadBalancerIngress) []any {
		s := &corev1.Service{Spec: spec, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}}}
		s.Name, s.CreationTimestamp = "s", ago(time.Minute)
		return core.Services().Row(s, noon)
	}
	for name, test := range map[string]struct{ got, want []any }{
		"cluster IP": {
			row(corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIPs: []string{"10.0.0.1"}, Selector: map[string]string{"a": "b"},
				Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 53, NodePort: 30053, Protocol: corev1.ProtocolUDP}}}),
			[]any{"s", "ClusterIP", "10.0.0.1", "<none>", "80/TCP,53:30053/UDP", "60s", "a=b"},
		},
		"no address yet": {
			row(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}),
			[]any{"s", "LoadBalancer", "<none>", "<pending>", "<none>", "60s", "<none>"},
		},
		"external name": {
			row(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}),
			[]any{"s", "ExternalName", "<none>", "db.example.com", "<none>", "60s", "<none>"},
		},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Converting an event there and back loses nothing.
func TestEventRoundTrip(t *testing.T) {
	r := core.Events()
	related := corev1.ObjectReference{Kind: "Node", Name: "n"}
	e := &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Name: "e"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"}, Reason: "R", Message: "m",
		Source: corev1.EventSource{Component: "c", Host: "h"}, FirstTimestamp: ago(2), LastTimestamp: ago(1), Count: 2,
		Type: "Normal", EventTime: metav1.NewMicroTime(noon), Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(noon)},
		Action: "A", Related: &related, ReportingController: "rc", ReportingInstance: "ri",
	}
	for i := range r.Versions {
		v := &r.Versions[i]
		if diff := cmp.Diff(resource.Object(e), v.ToHub(v.FromHub(e))); diff != "" {
			t.Errorf("%s: %s", v.GroupVersion, diff)
		}
	}
}
