package why

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func before(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// bound is a pod on node n1 with one container, a minute old.
func bound(change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", CreationTimestamp: before(time.Minute)},
		Spec:       v1.PodSpec{NodeName: "n1", SchedulerName: "default-scheduler", RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "app", Image: "img:1"}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, StartTime: ptr.To(before(time.Minute)), ContainerStatuses: []v1.ContainerStatus{{Name: "app"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func phase(to v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = to } }

func state(set func(*v1.ContainerStatus)) func(*v1.Pod) {
	return func(p *v1.Pod) { set(&p.Status.ContainerStatuses[0]) }
}

func waitingFor(reason, message string) func(*v1.Pod) {
	return state(func(s *v1.ContainerStatus) {
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: reason, Message: message}
	})
}

func lastEnded(code int32, reason string) func(*v1.Pod) {
	return state(func(s *v1.ContainerStatus) {
		s.RestartCount = 3
		s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: before(20 * time.Second)}
	})
}

func runs(ready, started bool) func(*v1.Pod) {
	return state(func(s *v1.ContainerStatus) {
		s.State.Running = &v1.ContainerStateRunning{StartedAt: before(30 * time.Second)}
		s.Ready, s.Started = ready, ptr.To(started)
	})
}

func event(reason, message string) v1.Event {
	return v1.Event{
		InvolvedObject: v1.ObjectReference{UID: "u", FieldPath: "spec.containers{app}"}, Type: v1.EventTypeWarning,
		Reason: reason, Message: message, LastTimestamp: before(2 * time.Second), Count: 4,
	}
}

// said is a finding as text: subject: reason: message [past] | remedies.
func said(findings []Finding) (out []string) {
	for _, f := range findings {
		text := f.Subject + ": " + f.Reason + ": " + f.Message
		if f.Past {
			text += " [past]"
		}
		out = append(out, strings.Join(append([]string{text}, f.Remedies...), " | "))
	}
	return out
}

type diagnosisCase struct {
	name  string
	pod   *v1.Pod
	facts facts
	want  []string
	log   string // the container whose log is read; with "previous " in front of that before its restart
}

func check(t *testing.T, cases []diagnosisCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.now = now
			got := diagnose(c.pod, &c.facts)
			if diff := cmp.Diff(c.want, said(got)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			log := ""
			if len(got) > 0 && got[0].log != nil {
				if log = got[0].log.Container; got[0].log.Previous {
					log = "previous " + log
				}
			}
			if log != c.log {
				t.Errorf("log of %q, want %q", log, c.log)
			}
		})
	}
}

func TestContainersThatDoNotRun(t *testing.T) {
	check(t, []diagnosisCase{
		{name: "image that does not exist", pod: bound(phase(v1.PodPending), waitingFor("ImagePullBackOff", `Back-off pulling image "img:1": ErrImagePull: img:1: not found`)), want: []string{
			`container app: ImagePullBackOff: image img:1 cannot be pulled: Back-off pulling image "img:1": ErrImagePull: img:1: not found | correct the name and tag of image img:1 | push the image | load the image on node n1 (coracle image load)`,
		}},
		{name: "image whose message is in an event", pod: bound(waitingFor("ImagePullBackOff", `Back-off pulling image "img:1"`)), facts: facts{events: []v1.Event{event("Failed", `Failed to pull image "img:1": dial tcp: no such host`)}}, want: []string{
			`container app: ImagePullBackOff: image img:1 cannot be pulled: Failed to pull image "img:1": dial tcp: no such host | make the image's registry reachable from node n1 | load the image on node n1 (coracle image load)`,
		}},
		{name: "private image", pod: bound(waitingFor("ErrImagePull", "401 Unauthorized")), want: []string{
			"container app: ErrImagePull: image img:1 cannot be pulled: 401 Unauthorized | give the pod imagePullSecrets for the image's registry | see that the image exists | load the image on node n1 (coracle image load)",
		}},
		{name: "image that is pulled anew", pod: bound(phase(v1.PodPending), waitingFor("ErrImagePull", "img:latest: not found"), func(p *v1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "img:latest", v1.PullAlways
		}), want: []string{
			"container app: ErrImagePull: image img:latest cannot be pulled: img:latest: not found | correct the name and tag of image img:latest | push the image | set imagePullPolicy: IfNotPresent, if node n1 has the image or gets it (coracle image load)",
		}},
		{name: "image that is never pulled", pod: bound(phase(v1.PodPending), waitingFor("ErrImageNeverPull", "not present")), want: []string{
			"container app: ErrImageNeverPull: image img:1 cannot be pulled: not present | load the image on node n1 (coracle image load) | set imagePullPolicy: IfNotPresent",
		}},
		{name: "missing ConfigMap", pod: bound(waitingFor("CreateContainerConfigError", `configmap "settings" not found`)), want: []string{
			`container app: CreateContainerConfigError: something that its configuration refers to does not exist: configmap "settings" not found | create what is missing, or mark the reference as optional`,
		}},
		{name: "crash", pod: bound(waitingFor("CrashLoopBackOff", "back-off 40s"), lastEnded(3, "Error")), log: "previous app", want: []string{
			"container app: CrashLoopBackOff: it ends again and again (restarted 3 times): it ended 20s ago with exit code 3; the kubelet waits longer each time before the next start | see the whole log: kubectl logs -n default p -c app --previous",
		}},
		{name: "out of memory", pod: bound(waitingFor("CrashLoopBackOff", ""), lastEnded(137, "OOMKilled"), func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
		}), log: "previous app", want: []string{
			"container app: CrashLoopBackOff, OOMKilled: it ends again and again (restarted 3 times): it was killed 20s ago because it used more memory than its limit of 64Mi; the kubelet waits longer each time before the next start" +
				" | raise resources.limits.memory of container app | let the program use less memory",
		}},
		{name: "failing liveness probe", pod: bound(waitingFor("CrashLoopBackOff", ""), lastEnded(137, "Error")), facts: facts{events: []v1.Event{event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500")}}, log: "previous app", want: []string{
			"container app: CrashLoopBackOff: it ends again and again (restarted 3 times): it ended 20s ago with exit code 137 (SIGKILL); the kubelet ended it because: Liveness probe failed: HTTP probe failed with statuscode: 500 (4 times, last 2s ago); the kubelet waits longer each time before the next start" +
				" | see why the probe fails | give the probe more time (timeoutSeconds, failureThreshold, or a startupProbe)",
		}},
		{name: "crash after a failed liveness probe of an earlier start", pod: bound(waitingFor("CrashLoopBackOff", ""), lastEnded(1, "Error"), state(func(s *v1.ContainerStatus) {
			s.LastTerminationState.Terminated.StartedAt = before(30 * time.Second)
		})), facts: facts{events: []v1.Event{{
			InvolvedObject: v1.ObjectReference{FieldPath: "spec.containers{app}"}, Reason: "Unhealthy", Message: "Liveness probe failed: timeout", LastTimestamp: before(time.Hour),
		}}}, log: "previous app", want: []string{
			"container app: CrashLoopBackOff: it ends again and again (restarted 3 times): it ended 20s ago with exit code 1; the kubelet waits longer each time before the next start | see the whole log: kubectl logs -n default p -c app --previous",
		}},
		{name: "program that ends", pod: bound(waitingFor("CrashLoopBackOff", ""), lastEnded(0, "Completed")), log: "previous app", want: []string{
			"container app: CrashLoopBackOff: it ends again and again (restarted 3 times): it ended 20s ago with exit code 0 (success); the kubelet waits longer each time before the next start | run a program that does not end | run it as a Job",
		}},
		{name: "init container first", pod: bound(phase(v1.PodPending), waitingFor("PodInitializing", ""), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "init"}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "init", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: before(time.Minute)}}}}
		}), log: "init", want: []string{"init container init: Running: it has been running for 60s; the other containers start when it ends"}},
	})
}

func TestContainersThatAreNotReady(t *testing.T) {
	probe := func(p *v1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(80)}}}
	}
	check(t, []diagnosisCase{
		{name: "failing readiness probe", pod: bound(runs(false, true), probe), facts: facts{events: []v1.Event{event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")}}, log: "app", want: []string{
			"container app: NotReady: it has been running for 30s, and its readiness probe fails: HTTP probe failed with statuscode: 503 (4 times, last 2s ago) | see why the program does not answer the probe | correct the readiness probe: GET /ready on port 80",
		}},
		{name: "readiness probe that was not asked yet", pod: bound(runs(false, true), probe), want: []string{
			"container app: NotReady: it has been running for 30s, and its readiness probe (GET /ready on port 80) has not succeeded yet",
		}},
		{name: "startup probe", pod: bound(runs(false, false), func(p *v1.Pod) {
			p.Spec.Containers[0].StartupProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
		}), want: []string{"container app: NotStarted: it has been running for 30s, and its startup probe (true) has not succeeded yet"}},
		{name: "readiness gate", pod: bound(runs(true, true), func(p *v1.Pod) { p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/lb"}} }), want: []string{
			"readiness gate example.com/lb: ReadinessGatesNotReady: the pod does not have this condition with status True | see why its controller does not set the condition",
		}},
		{name: "restarted and ready", pod: bound(runs(true, true), lastEnded(1, "Error")), log: "previous app", want: []string{
			"container app: Error: it was restarted 3 times: the last time it ended 20s ago with exit code 1 [past]",
		}},
		{name: "healthy", pod: bound(runs(true, true))},
	})
}

func TestPodsAndNodes(t *testing.T) {
	unready := &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{
		Type: v1.NodeReady, Status: v1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.", LastTransitionTime: before(5 * time.Minute),
	}}}}
	unbound := func(p *v1.Pod) { p.Spec.NodeName, p.Status = "", v1.PodStatus{Phase: v1.PodPending} }
	fails := func(reason, message string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message, p.Status.ContainerStatuses = v1.PodFailed, reason, message, nil
		}
	}
	class := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}}
	chosen := class.DeepCopy()
	chosen.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "n2"}
	waits := event("WaitForPodScheduled", "waiting for pod p to be scheduled")
	waits.Type = v1.EventTypeNormal
	unschedulable := func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable}}
	}
	check(t, []diagnosisCase{
		{name: "evicted", pod: bound(fails("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. ")), want: []string{
			"pod: Evicted: the kubelet of node n1 evicted it: The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. | request as much memory as it uses: pods that use more than they request are evicted first | free memory on node n1",
		}},
		{name: "evicted for its own limit", pod: bound(fails("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ")), want: []string{
			"pod: Evicted: the kubelet of node n1 evicted it: Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. | raise the limits of ephemeral-storage, or the sizeLimit of its volumes | let the program write less",
		}},
		{name: "not admitted", pod: bound(fails("OutOfcpu", "Node didn't have enough resource: cpu")), want: []string{
			"pod: OutOfcpu: the kubelet of node n1 did not admit it: Node didn't have enough resource: cpu | recreate it, so that the scheduler chooses a node",
		}},
		{name: "preempted", pod: bound(fails("", ""), func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler}}
		}), want: []string{"pod: PreemptionByScheduler: the scheduler evicted it to make room for a pod of higher priority"}},
		{name: "node that does not answer", pod: bound(runs(true, true)), facts: facts{node: unready}, want: []string{
			"node n1: NodeStatusUnknown: it has not been ready for 5m: Kubelet stopped posting node status. | make the kubelet of node n1 work again (kubectl describe node n1)",
		}},
		{name: "node that is gone", pod: bound(runs(true, true)), facts: facts{noNode: true}, want: []string{
			"node n1: NotFound: it does not exist (any more) | delete the pod: its controller makes another one",
		}},
		{name: "kubelet that is silent", pod: bound(phase(v1.PodPending), func(p *v1.Pod) { p.Status.StartTime, p.Status.ContainerStatuses = nil, nil }), want: []string{
			"node n1: NotTakenUp: its kubelet has not reported anything about the pod yet | see that the kubelet of node n1 runs",
		}},
		{name: "volume that cannot be mounted", pod: bound(phase(v1.PodPending), waitingFor("ContainerCreating", "")), facts: facts{events: []v1.Event{event("FailedMount", "MountVolume.SetUp failed\nfor volume \"v\" : secret \"s\" not found")}}, want: []string{
			`volumes: FailedMount: MountVolume.SetUp failed for volume "v" : secret "s" not found (4 times, last 2s ago) | create what is missing in namespace default, or mark the reference as optional`,
		}},
		{name: "device without a driver", pod: bound(phase(v1.PodPending), waitingFor("ContainerCreating", "")), facts: facts{events: []v1.Event{event("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: DRA driver d is not registered")}}, want: []string{
			`resource claims: FailedPrepareDynamicResources: Failed to prepare dynamic resources: DRA driver d is not registered (4 times, last 2s ago) | see that the DRA driver runs on node n1`,
		}},
		{name: "no scheduler", pod: bound(unbound), want: []string{
			"scheduler: NotScheduled: no scheduler has reported anything about the pod, which was created 60s ago (schedulerName default-scheduler) | see that a scheduler of that name runs (coracle status, kubectl get lease -n kube-system)",
		}},
		{name: "claims", pod: bound(phase(v1.PodPending), waitingFor("ContainerCreating", "")), facts: facts{claims: []claim{{name: "gone"}, {name: "data", object: class}}}, want: []string{
			"PersistentVolumeClaim gone: NotFound: it does not exist in namespace default | create it, or correct the pod's spec.volumes",
			"PersistentVolumeClaim data: Pending: it is not bound to a volume (StorageClass fast) | see that the provisioner of StorageClass fast runs | create a PersistentVolume of that class",
		}},
		{name: "claim that its provisioner refuses", pod: bound(unbound), facts: facts{claims: []claim{{name: "data", object: chosen, events: []v1.Event{
			event("ProvisioningFailed", "failed to provision volume with StorageClass \"fast\": access mode ReadWriteMany is not supported"), waits,
		}}}}, want: []string{
			"PersistentVolumeClaim data: ProvisioningFailed: the scheduler has chosen node n2 and waits for a volume (StorageClass fast): failed to provision volume with StorageClass \"fast\": access mode ReadWriteMany is not supported" +
				" | correct what the message names (most fields of a claim and of a StorageClass change only by recreating it) | recreate the claim with another storageClassName",
		}},
		{name: "claim whose provisioner is silent", pod: bound(unbound), facts: facts{claims: []claim{{name: "data", object: chosen, events: []v1.Event{waits}}}}, want: []string{
			"PersistentVolumeClaim data: Pending: the scheduler has chosen node n2 and waits for a volume (StorageClass fast) | see that the provisioner of StorageClass fast runs | create a PersistentVolume of that class",
		}},
		{name: "claim that waits for the scheduler", pod: bound(unbound, unschedulable), facts: facts{claims: []claim{{name: "data", object: class, events: []v1.Event{waits}}}}},
		{name: "claim of no class", pod: bound(unbound, unschedulable), facts: facts{claims: []claim{{name: "data", object: class, events: []v1.Event{
			event("ProvisioningFailed", `storageclass.storage.k8s.io "fast" not found`),
		}}}}, want: []string{
			"PersistentVolumeClaim data: ProvisioningFailed: it is not bound to a volume: StorageClass fast does not exist | create StorageClass fast | recreate the claim with another storageClassName",
		}},
		{name: "finalizers", pod: bound(func(p *v1.Pod) {
			p.DeletionTimestamp, p.Finalizers = ptr.To(before(time.Minute)), []string{"example.com/f"}
		}), want: []string{
			"deletion: Finalizers: its finalizers keep it: example.com/f | let the controllers of the finalizers do their work and remove them",
		}},
		{name: "finished", pod: bound(phase(v1.PodSucceeded))},
	})
}

func TestFinishedPodBeingDeleted(t *testing.T) {
	leaving := func(finalizers ...string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.DeletionTimestamp, p.Finalizers = ptr.To(before(-time.Minute)), finalizers }
	}
	check(t, []diagnosisCase{
		{name: "held by a finalizer", pod: bound(phase(v1.PodSucceeded), leaving("example.com/f")), want: []string{
			"deletion: Finalizers: its finalizers keep it: example.com/f | let the controllers of the finalizers do their work and remove them",
		}},
		{name: "to be removed by its node", pod: bound(phase(v1.PodSucceeded), leaving()), want: []string{
			"deletion: Terminating: its containers have ended, and node n1 is about to remove it",
		}},
	})
}

// Text from pods cannot control the terminal.
func TestTextIsPrintable(t *testing.T) {
	var b strings.Builder
	(&Report{
		Namespace: "default", Name: "p", State: "failed", Answer: "x\ny", WhatIf: []string{"w\nx"}, NotRead: []string{"n\no"},
		Findings: []Finding{{Subject: "a\nb", Reason: "r\ns", Message: "red \x1b[31m\u202e\nm", Remedies: []string{"do\nit"}, Log: []string{"\x07\tbell\u009b"}}},
	}).WriteText(&b)
	const want = `Pod default/p has failed: x y.

a b: r s
  red [31m m
  The end of its log:
  |  bell
  What would help: do it

What if: w x.

Not looked at, so the answer may be incomplete:
- n o
`
	if b.String() != want {
		t.Errorf("text %q, want %q", b.String(), want)
	}
}
