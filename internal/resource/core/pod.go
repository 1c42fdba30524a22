package core

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	podutil "github.com/coracle-io/coracle/internal/pod"
	"github.com/coracle-io/coracle/internal/resource"
)

// Pods is the resource pods.
func Pods() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Pod, *corev1.Pod]{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Pod",
		Plural:              "pods",
		ReturnDeletedObject: true,
		ShortNames:          []string{"po"},
		Categories:          []string{"all"},
		Default:             defaultPod,
		Spec:                func(p *corev1.Pod) any { return &p.Spec },
		CopyStatus:          func(p, from *corev1.Pod) { p.Status = from.Status },
		PrepareForCreate:    preparePod,
		PrepareForUpdate: func(r *resource.Request, p, old *corev1.Pod) {
			feature.Drop(r.Features, podFields, &p.Spec, &old.Spec)
		},
		PrepareStatus:        preparePodStatus,
		ValidateStatus:       validatePodStatus,
		Validate:             validatePod,
		ValidateUpdate:       validatePodUpdate,
		UpdateValidatesAlone: true,
		ValidateName:         PodName,
		Warnings:             podWarnings,
		GracePeriod:          podGracePeriod,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Ready", "string", "The aggregate readiness state of this pod for accepting traffic."),
			resource.Column("Status", "string", "The aggregate status of the containers in this pod."),
			resource.Column("Restarts", "string", "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted."),
			resource.AgeColumn(),
			resource.WideColumn("IP", "string", corev1.PodStatus{}.SwaggerDoc()["podIP"]),
			resource.WideColumn("Node", "string", corev1.PodSpec{}.SwaggerDoc()["nodeName"]),
			resource.WideColumn("Nominated Node", "string", corev1.PodStatus{}.SwaggerDoc()["nominatedNodeName"]),
			resource.WideColumn("Readiness Gates", "string", corev1.PodSpec{}.SwaggerDoc()["readinessGates"]),
		},
		Row:             podRow,
		SelectableField: podField,
		Fields: []string{
			"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
			"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
		},
		Indexed:      []string{"spec.nodeName"},
		Subresources: podSubresources(),
	})
}

// PodName checks a pod's name, and that of everything that makes pods.
func PodName(name string, prefix bool) []string { return validation.NameIsDNSSubdomain(name, prefix) }

func podSubresources() []resource.SubresourceDefinition[corev1.Pod, *corev1.Pod] {
	type subresource = resource.SubresourceDefinition[corev1.Pod, *corev1.Pod]
	core := corev1.SchemeGroupVersion
	return []subresource{
		{Name: "attach", Kind: core.WithKind("PodAttachOptions"), Verbs: []string{"create", "get"}, Action: resource.UseContainer},
		{Name: "binding", Kind: core.WithKind("Binding"), Verbs: []string{"create"}, Action: resource.Bind},
		{
			Name:             "ephemeralcontainers",
			PrepareForUpdate: prepareEphemeralContainers,
			ValidateUpdate:   validateEphemeralContainersUpdate,
		},
		{
			Name:   "eviction",
			Kind:   schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
			Verbs:  []string{"create"},
			Action: resource.Evict,
		},
		{Name: "exec", Kind: core.WithKind("PodExecOptions"), Verbs: []string{"create", "get"}, Action: resource.UseContainer},
		{Name: "log", Verbs: []string{"get"}, Action: resource.ReadLog},
		{Name: "portforward", Kind: core.WithKind("PodPortForwardOptions"), Verbs: []string{"create", "get"}, Action: resource.UseContainer},
		{Name: "proxy", Kind: core.WithKind("PodProxyOptions"), Verbs: []string{"create", "delete", "get", "patch", "update"}, Action: resource.Proxy},
		{
			Name:             "resize",
			PrepareForUpdate: preparePodResize,
			ValidateUpdate:   validatePodResize,
		},
	}
}

// podField is the value of one selectable field.
func podField(p *corev1.Pod, field string) string {
	switch field {
	case "spec.nodeName":
		return p.Spec.NodeName
	case "spec.restartPolicy":
		return string(p.Spec.RestartPolicy)
	case "spec.schedulerName":
		return p.Spec.SchedulerName
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName
	case "spec.hostNetwork":
		return strconv.FormatBool(p.Spec.HostNetwork)
	case "status.phase":
		return string(p.Status.Phase)
	case "status.podIP":
		if p.Status.PodIP == "" && len(p.Status.PodIPs) > 0 {
			return p.Status.PodIPs[0].IP
		}
		return p.Status.PodIP
	case "status.podIPs":
		ips := make([]string, len(p.Status.PodIPs))
		for i := range ips {
			ips[i] = p.Status.PodIPs[i].IP
		}
		return strings.Join(ips, ",")
	case "status.nominatedNodeName":
		return p.Status.NominatedNodeName
	}
	return ""
}

// preparePod starts the pod's life: pending, in the class of service that its
// resources make it.
func preparePod(r *resource.Request, p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podutil.QOSClass(p)}
	feature.Drop(r.Features, podFields, &p.Spec, nil)
	if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		*grace = 1
	}
	mergeLabelKeys(p)
	addSchedulingGatedCondition(p)
	applyAppArmorAnnotations(p)
}

// addSchedulingGatedCondition says at once that the scheduler does not look
// at the pod yet.
func addSchedulingGatedCondition(p *corev1.Pod) {
	if len(p.Spec.SchedulingGates) == 0 {
		return
	}
	if podutil.Condition(&p.Status, corev1.PodScheduled) != nil {
		return
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type:    corev1.PodScheduled,
		Status:  corev1.ConditionFalse,
		Reason:  corev1.PodReasonSchedulingGated,
		Message: "Scheduling is blocked due to non-empty scheduling gates",
	})
}

// podGracePeriod is how long the pod may take to stop: not at all if it has
// not started or has ended.
func podGracePeriod(p *corev1.Pod, options *metav1.DeleteOptions) int64 {
	var period int64
	switch {
	case options != nil && options.GracePeriodSeconds != nil:
		period = *options.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	ended := podutil.IsFinished(p)
	switch {
	case p.Spec.NodeName == "" || ended:
		return 0
	case period < 0:
		return 1
	}
	return period
}

func validatePod(r *resource.Request, p *corev1.Pod) field.ErrorList {
	errs := validatePodBody(p, PodTemplateOptions(r.Features, nil))
	return append(errs, validateProfilesAgree(p, field.NewPath("spec"))...)
}

func podAsTemplate(p *corev1.Pod) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

func podRow(p *corev1.Pod, now time.Time) []any {
	summary := summarize(p, now)
	ip := p.Status.PodIP
	if ip == "" && len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", summary.ready, summary.total), summary.status, summary.restarts,
		resource.Age(p.CreationTimestamp, now), orNone(ip), orNone(p.Spec.NodeName),
		orNone(p.Status.NominatedNodeName), readinessGates(p),
	}
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return orNone("")
	}
	met := 0
	for _, gate := range p.Spec.ReadinessGates {
		if podutil.HasCondition(&p.Status, gate.ConditionType) {
			met++
		}
	}
	return fmt.Sprintf("%d/%d", met, len(p.Spec.ReadinessGates))
}
