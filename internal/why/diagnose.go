package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/podquery"
)

// diagnose returns the findings from the pod's status, its events and the
// objects that it needs. The decisive finding comes first.
func diagnose(pod *v1.Pod, f *facts) []Finding {
	d := &diagnosis{pod: pod, facts: f}
	switch {
	case podquery.IsTerminating(pod):
		d.deletion()
		d.nodeState()
	case podquery.IsFinished(pod):
		if pod.DeletionTimestamp != nil {
			d.deletion()
			d.nodeState()
		}
		if pod.Status.Phase == v1.PodFailed {
			d.failure()
			d.containers()
		}
	case pod.Spec.NodeName == "":
		d.notLookedAt()
		d.volumeClaims()
		d.schedulerError()
	default:
		d.nodeState()
		d.notTakenUp()
		before := len(d.findings)
		d.containers()
		if len(d.findings) == before {
			d.volumeClaims()
			d.startup()
			d.gates()
		}
	}
	return d.ordered()
}

type diagnosis struct {
	*facts
	pod      *v1.Pod
	findings []Finding
}

func (d *diagnosis) add(f Finding) { d.findings = append(d.findings, f) }

// ordered returns the findings, those about the past last.
func (d *diagnosis) ordered() (out []Finding) {
	for _, past := range []bool{false, true} {
		for _, f := range d.findings {
			if f.Past == past {
				out = append(out, f)
			}
		}
	}
	return out
}

// latest returns the newest event of one of the reasons, or nil.
func latest(events []v1.Event, wanted func(*v1.Event) bool) *v1.Event {
	for i := range events {
		if wanted(&events[i]) {
			return &events[i]
		}
	}
	return nil
}

func reasons(names ...string) func(*v1.Event) bool {
	return func(e *v1.Event) bool {
		for _, n := range names {
			if e.Reason == n {
				return true
			}
		}
		return false
	}
}

// deletion explains why a pod that is being deleted is still there.
func (d *diagnosis) deletion() {
	pod := d.pod
	since := d.now.Sub(pod.DeletionTimestamp.Time) // DeletionTimestamp is when the grace period ends
	f := Finding{Subject: "deletion", Reason: "Terminating", Message: fmt.Sprintf("its containers have until %s to end (grace period %ds)",
		pod.DeletionTimestamp.Format(time.TimeOnly), ptr.Deref(pod.DeletionGracePeriodSeconds, 0))}
	if podquery.IsFinished(pod) {
		f.Message = "its containers have ended, and node " + pod.Spec.NodeName + " is about to remove it"
	}
	switch {
	case len(pod.Finalizers) > 0:
		f.Reason, f.Message = "Finalizers", "its finalizers keep it: "+strings.Join(pod.Finalizers, ", ")
		f.Remedies = []string{"let the controllers of the finalizers do their work and remove them"}
	case since > 0 && pod.Spec.NodeName != "":
		f.Message = fmt.Sprintf("its grace period ended %s, and node %s has not confirmed that its containers ended", ago(*pod.DeletionTimestamp, d.now), pod.Spec.NodeName)
		f.Remedies = []string{"make node " + pod.Spec.NodeName + " work again", "if the node is gone permanently: kubectl delete pod " + pod.Name + " -n " + pod.Namespace + " --force"}
	}
	d.add(f)
}

// failure explains a pod that has failed as a whole.
func (d *diagnosis) failure() {
	pod := d.pod
	f := Finding{Subject: thePod, Reason: pod.Status.Reason, Message: oneLine(pod.Status.Message)}
	switch {
	case f.Reason == "Evicted":
		f.Message = fmt.Sprintf("the kubelet of node %s evicted it: %s", pod.Spec.NodeName, f.Message)
		f.Remedies = evictionRemedies(pod, f.Message)
	case f.Reason == "DeadlineExceeded":
		f.Message = fmt.Sprintf("it ran longer than activeDeadlineSeconds (%d)", ptr.Deref(pod.Spec.ActiveDeadlineSeconds, 0))
		f.Remedies = []string{"raise spec.activeDeadlineSeconds"}
	case strings.HasPrefix(f.Reason, "OutOf"), f.Reason == "NodeAffinity", f.Reason == "NodePorts", f.Reason == "UnexpectedAdmissionError":
		f.Message = fmt.Sprintf("the kubelet of node %s did not admit it: %s", pod.Spec.NodeName, f.Message)
		f.Remedies = []string{"recreate it, so that the scheduler chooses a node"}
	}
	if c := podquery.Condition(&pod.Status, v1.DisruptionTarget); c != nil && c.Status == v1.ConditionTrue && f.Reason != "Evicted" {
		f.Reason = cmp.Or(f.Reason, c.Reason)
		f.Message = disrupted(c)
	}
	if f.Message != "" {
		f.Reason = cmp.Or(f.Reason, "Failed")
		d.add(f)
	}
}

// disrupted says who ended the pod.
func disrupted(c *v1.PodCondition) string {
	by := map[string]string{
		v1.PodReasonPreemptionByScheduler: "the scheduler evicted it to make room for a pod of higher priority",
		"DeletionByTaintManager":          "it was deleted because its node has a taint that it does not tolerate",
		"DeletionByDeviceTaintManager":    "it was deleted because one of its devices has a taint that its claim does not tolerate",
		"EvictionByEvictionAPI":           "it was evicted through the API, as kubectl drain does",
		"DeletionByPodGC":                 "it was deleted because its node is gone",
		v1.PodReasonTerminationByKubelet:  "the kubelet ended it",
	}[c.Reason]
	if c.Message == "" || by == "" {
		return cmp.Or(by, oneLine(c.Message), c.Reason)
	}
	return by + " (" + oneLine(c.Message) + ")"
}

func evictionRemedies(pod *v1.Pod, message string) []string {
	_, after, found := strings.Cut(message, "low on resource: ")
	if !found && strings.Contains(message, " exceeds the ") {
		return []string{"raise the limits of ephemeral-storage, or the sizeLimit of its volumes", "let the program write less"}
	}
	if !found {
		return []string{"recreate it on another node"}
	}
	resource, _, _ := strings.Cut(after, ".")
	request := fmt.Sprintf("request as much %s as it uses: pods that use more than they request are evicted first", resource)
	return []string{request, fmt.Sprintf("free %s on node %s", resource, pod.Spec.NodeName)}
}

// notScheduled is the reason of the finding that no scheduler looked at the pod.
const notScheduled = "NotScheduled"

// notLookedAt reports that no scheduler looked at the pod. A scheduler that has
// chosen a node for a claim of the pod has looked at it, although the pod does
// not say so yet.
func (d *diagnosis) notLookedAt() {
	const soon = 5 * time.Second
	hasChosen := slices.ContainsFunc(d.claims, func(c claim) bool { return c.selectedNode() != "" })
	c := podquery.Condition(&d.pod.Status, v1.PodScheduled)
	if c == nil && !hasChosen && d.now.Sub(d.pod.CreationTimestamp.Time) > soon && latest(d.events, reasons("FailedScheduling")) == nil {
		d.add(Finding{
			Subject: "scheduler", Reason: notScheduled,
			Message:  fmt.Sprintf("no scheduler has reported anything about the pod, which was created %s (schedulerName %s)", ago(d.pod.CreationTimestamp, d.now), d.pod.Spec.SchedulerName),
			Remedies: []string{"see that a scheduler of that name runs (coracle status, kubectl get lease -n kube-system)"},
		})
	}
}

// schedulerError reports an error of the scheduler.
func (d *diagnosis) schedulerError() {
	if c := podquery.Condition(&d.pod.Status, v1.PodScheduled); c != nil && c.Reason == v1.PodReasonSchedulerError {
		d.add(Finding{Subject: "scheduler", Reason: c.Reason, Message: oneLine(c.Message)})
	}
}

func (d *diagnosis) volumeClaims() {
	for _, c := range d.claims {
		subject := "PersistentVolumeClaim " + c.name
		switch {
		case c.object == nil:
			d.add(Finding{Subject: subject, Reason: "NotFound", Message: "it does not exist in namespace " + d.pod.Namespace, Remedies: []string{"create it, or correct the pod's spec.volumes"}})
		case c.isAnothers:
			d.add(Finding{
				Subject: subject, Reason: "NotOwned", Message: "it has the name of the claim of an ephemeral volume of the pod, and was not made for the pod",
				Remedies: []string{"delete the claim if nobody needs it", "rename the pod or its volume"},
			})
		case c.object.Status.Phase == v1.ClaimLost:
			d.add(Finding{Subject: subject, Reason: "Lost", Message: "its PersistentVolume " + c.object.Spec.VolumeName + " is gone"})
		case c.object.Status.Phase != v1.ClaimBound:
			if f, explains := d.pendingClaim(subject, c); explains {
				d.add(f)
			}
		}
	}
}

// pendingClaim explains a claim that is not bound. A claim that waits for its
// pod to be scheduled explains nothing about a pod without a node.
func (d *diagnosis) pendingClaim(subject string, c claim) (f Finding, explains bool) {
	class := volume.GetPersistentVolumeClaimClass(c.object)
	f = Finding{Subject: subject, Reason: "Pending", Message: "it is not bound to a volume"}
	node := c.selectedNode()
	if node != "" && d.pod.Spec.NodeName == "" {
		f.Message = "the scheduler has chosen node " + node + " and waits for a volume"
	}
	if class == "" {
		f.Remedies = []string{"create a PersistentVolume that fits it", "give it a storageClassName that provisions volumes"}
	} else {
		f.Message += " (StorageClass " + class + ")"
		f.Remedies = []string{"see that the provisioner of StorageClass " + class + " runs", "create a PersistentVolume of that class"}
	}
	e := latest(c.events, func(e *v1.Event) bool { return e.Type == v1.EventTypeWarning || e.Reason == "FailedBinding" })
	switch {
	case e == nil:
		waits := latest(c.events, reasons("WaitForFirstConsumer", "WaitForPodScheduled")) != nil
		return f, !waits || node != "" || d.pod.Spec.NodeName != ""
	case class != "" && e.Message == fmt.Sprintf("storageclass.storage.k8s.io %q not found", class):
		f.Reason, f.Message = e.Reason, "it is not bound to a volume: StorageClass "+class+" does not exist"
		f.Remedies = []string{"create StorageClass " + class, "recreate the claim with another storageClassName"}
	case e.Reason == "ProvisioningFailed":
		f.Reason = e.Reason
		f.Remedies = []string{"correct what the message names (most fields of a claim and of a StorageClass change only by recreating it)", "recreate the claim with another storageClassName"}
		fallthrough
	default:
		f.Message += ": " + oneLine(e.Message)
	}
	return f, true
}

// nodeState explains a node that is gone or not ready.
func (d *diagnosis) nodeState() {
	name := d.pod.Spec.NodeName
	if d.noNode {
		d.add(Finding{Subject: "node " + name, Reason: "NotFound", Message: "it does not exist (any more)", Remedies: []string{"delete the pod: its controller makes another one"}})
	}
	if d.node == nil {
		return
	}
	if c := nodestatus.Condition(d.node, v1.NodeReady); c != nil && c.Status != v1.ConditionTrue {
		d.add(Finding{
			Subject: "node " + name, Reason: cmp.Or(c.Reason, "NotReady"), Message: fmt.Sprintf("it has not been ready for %s: %s", lasting(c.LastTransitionTime, d.now), oneLine(c.Message)),
			Remedies: []string{"make the kubelet of node " + name + " work again (kubectl describe node " + name + ")"},
		})
	}
}

// notTakenUp explains a pod that its kubelet has not reported about.
func (d *diagnosis) notTakenUp() {
	if d.pod.Status.StartTime != nil || len(d.findings) > 0 {
		return
	}
	d.add(Finding{
		Subject: "node " + d.pod.Spec.NodeName, Reason: "NotTakenUp", Message: "its kubelet has not reported anything about the pod yet",
		Remedies: []string{"see that the kubelet of node " + d.pod.Spec.NodeName + " runs"},
	})
}

// startup explains by events why containers are not created.
func (d *diagnosis) startup() {
	if d.pod.Status.Phase != v1.PodPending {
		return
	}
	failures := reasons("FailedMount", "FailedMapVolume", "FailedAttachVolume", "FailedCreatePodSandBox", "NetworkNotReady", "FailedCreatePodContainer", "FailedPrepareDynamicResources", "HostPortConflict", "FailedBinding")
	if e := latest(d.events, failures); e != nil {
		what := map[string]string{"FailedMount": "volumes", "FailedMapVolume": "volumes", "FailedAttachVolume": "volumes", "FailedPrepareDynamicResources": "resource claims"}[e.Reason]
		f := Finding{Subject: cmp.Or(what, "pod sandbox"), Reason: e.Reason, Message: fmt.Sprintf("%s (%s)", oneLine(e.Message), times(e, d.now)), brief: oneLine(e.Message)}
		if strings.HasSuffix(e.Message, "not found") {
			f.Remedies = []string{"create what is missing in namespace " + d.pod.Namespace + ", or mark the reference as optional"}
		}
		if strings.HasSuffix(e.Message, "is not registered") {
			f.Remedies = []string{"see that the DRA driver runs on node " + d.pod.Spec.NodeName}
		}
		d.add(f)
	}
}

// gates explains a pod that is not ready although its containers are.
func (d *diagnosis) gates() {
	if podquery.IsReady(d.pod) {
		return
	}
	for _, gate := range d.pod.Spec.ReadinessGates {
		if !podquery.HasCondition(&d.pod.Status, gate.ConditionType) {
			d.add(Finding{
				Subject: "readiness gate " + string(gate.ConditionType), Reason: "ReadinessGatesNotReady", Message: "the pod does not have this condition with status True",
				Remedies: []string{"see why its controller does not set the condition"},
			})
		}
	}
}

// times is how often an event was seen, and when last.
func times(e *v1.Event, now time.Time) string {
	n := max(e.Count, 1)
	if e.Series != nil {
		n = max(n, e.Series.Count)
	}
	at := ago(metav1.NewTime(lastSeen(e)), now)
	if n == 1 {
		return at
	}
	return fmt.Sprintf("%d times, last %s", n, at)
}
