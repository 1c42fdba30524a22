package core_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
)

var noon = time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

type podRowCase struct {
	pod                     corev1.Pod
	ready, status, restarts string
}

// TestRowsFillColumns checks that the row of every kind has as many cells as
// columns, also for an empty object.
func TestRowsFillColumns(t *testing.T) {
	for _, r := range core.Resources() {
		if cells := r.Table.Row(r.Hub().New(), noon); len(cells) != len(r.Table.Columns) {
			t.Errorf("%s: %d cells for %d columns", r.Plural, len(cells), len(r.Table.Columns))
		}
	}
}

// TestEndpointsColumn checks the first endpoints and the number of the others,
// also if there are too many to list.
//
//nolint:staticcheck // Endpoints are deprecated, and are still to be shown.
func TestEndpointsColumn(t *testing.T) {
	addresses, ports := make([]corev1.EndpointAddress, 300_000), make([]corev1.EndpointPort, 300_000)
	for i := range addresses {
		addresses[i].IP, ports[i].Port = "10.0.0.1", int32(i%2+1)
	}
	for want, subsets := range map[string][]corev1.EndpointSubset{
		"<none>":                         nil,
		"":                               {{NotReadyAddresses: addresses[:1], Ports: ports[:1]}},
		"10.0.0.1,10.0.0.1:1,10.0.0.1:2": {{Addresses: addresses[:1]}, {Addresses: addresses[:1], Ports: ports[:2]}},
		"10.0.0.1:1,10.0.0.1:1,10.0.0.1:2 + 1 more...":           {{Addresses: addresses[:2], Ports: ports[:2]}},
		"10.0.0.1:1,10.0.0.1:1,10.0.0.1:1 + 89999999997 more...": {{Addresses: addresses, Ports: ports}},
	} {
		e := &corev1.Endpoints{Subsets: subsets}
		for _, r := range core.Resources() {
			if r.Plural == "endpoints" {
				if got := r.Table.Row(e, noon)[1]; got != want {
					t.Errorf("endpoints %v, want %s", got, want)
				}
			}
		}
	}
}

// TestKernelColumn checks that the kernel of a node is shown with its architecture.
func TestKernelColumn(t *testing.T) {
	for want, info := range map[string]corev1.NodeSystemInfo{
		"6.8.0-142-generic (amd64)": {KernelVersion: "6.8.0-142-generic", Architecture: "amd64"},
		"6.8.0-142-generic":         {KernelVersion: "6.8.0-142-generic"},
		"<unknown>":                 {Architecture: "amd64"},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: info}}
		if got := core.Nodes().Table.Row(n, noon)[8]; got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

// TestLoadBalancerColumn checks that the addresses of a load balancer are
// sorted, before the external addresses.
func TestLoadBalancerColumn(t *testing.T) {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"1.1.1.1"}}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "2001:db8::1"}, {IP: "192.0.2.1"}, {Hostname: "a.example"}}
	if got, want := core.Services().Table.Row(s, noon)[3], "192.0.2.1,2001:db8::1,a.example,1.1.1.1"; got != want {
		t.Errorf("external addresses %v, want %s", got, want)
	}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func terminated(code int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func TestPodStatusColumn(t *testing.T) {
	checkPodRows(t, map[string]podRowCase{
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
				{State: running(), Ready: true}}}},
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
				{State: terminated(3, "")}}}},
			ready: "0/1", status: "ExitCode:3", restarts: "0",
		},
	})
}

func TestInitContainerStatusColumn(t *testing.T) {
	checkPodRows(t, map[string]podRowCase{
		"initializing": {
			pod: corev1.Pod{
				Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{
					{Name: "a", State: terminated(0, "Completed")}, {Name: "b", State: running()}}},
			},
			ready: "0/1", status: "Init:1/2", restarts: "0",
		},
		"initialization failed": {
			pod: corev1.Pod{
				Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "a"}}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{
					{Name: "a", State: terminated(1, "Error"), RestartCount: 2}}},
			},
			ready: "0/1", status: "Init:Error", restarts: "2",
		},
		"sidecar counts": {
			pod: corev1.Pod{
				Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}},
				Status: corev1.PodStatus{
					Phase:                 corev1.PodRunning,
					InitContainerStatuses: []corev1.ContainerStatus{{Name: "s", State: running(), Ready: true, Started: new(true)}},
					ContainerStatuses:     []corev1.ContainerStatus{{State: running(), Ready: true}},
				},
			},
			ready: "2/2", status: "Running", restarts: "0",
		},
	})
}

func TestDeletedPodStatusColumn(t *testing.T) {
	checkPodRows(t, map[string]podRowCase{
		"terminating": {
			pod: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: noon}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{State: running(), Ready: true}}},
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
	})
}

// TestEndedPodRow checks the condition of the row of a pod that has ended.
func TestEndedPodRow(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]string{
		corev1.PodRunning: "", corev1.PodSucceeded: "The pod has completed successfully.", corev1.PodFailed: "The pod failed.",
	} {
		conditions := pod.Pods().Table.Conditions(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}})
		if want == "" && len(conditions) > 0 {
			t.Errorf("%s: %v", phase, conditions)
		}
		if want != "" && (len(conditions) != 1 || conditions[0] != metav1.TableRowCondition{Type: "Completed", Status: "True", Reason: string(phase), Message: want}) {
			t.Errorf("%s: %v", phase, conditions)
		}
	}
}

// checkPodRows compares the cells of pods with one container.
func checkPodRows(t *testing.T, cases map[string]podRowCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			test.pod.Name = "p"
			test.pod.CreationTimestamp = ago(time.Hour)
			test.pod.Spec.Containers = []corev1.Container{{Name: "c"}}
			want := []any{"p", test.ready, test.status, test.restarts, "60m", "<none>", "<none>", "<none>", "<none>"}
			if diff := cmp.Diff(want, pod.Pods().Table.Row(&test.pod, noon)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestServiceRow(t *testing.T) {
	row := func(spec corev1.ServiceSpec, ingress ...corev1.LoadBalancerIngress) []any {
		s := &corev1.Service{Spec: spec, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}}}
		s.Name, s.CreationTimestamp = "s", ago(time.Minute)
		return core.Services().Table.Row(s, noon)
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

// TestEventRoundTrip checks that converting an event to the other version and
// back loses nothing.
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
