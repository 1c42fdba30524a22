// Package pod has the resources pods and bindings: defaults, validation,
// update rules, status rules, warnings and table columns. Workloads use it for
// their pod templates ([DefaultTemplate], [ValidateTemplate],
// [TemplateWarnings]), the kubelet for static pods ([Default],
// [ValidateCreate]).
//
// Each file is about one part of a pod. The rules for the parts of a spec
// share a context; validation.go shows how they fit together.
package pod

import (
	"cmp"
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
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// Pods is the resource pods.
func Pods() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Pod, *corev1.Pod]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "Pod",
			Plural:     "pods",
			ShortNames: []string{"po"},
			Categories: []string{"all"},
		},
		Default: Default,
		Spec:    func(p *corev1.Pod) any { return &p.Spec },
		Status: resource.Status[*corev1.Pod]{
			Copy:     func(p, from *corev1.Pod) { p.Status = from.Status },
			Prepare:  prepareStatus,
			Validate: validateStatus,
			Warnings: statusWarnings,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*corev1.Pod]{
			PrepareForCreate: prepareForCreate,
			PrepareForUpdate: prepareForUpdate,
			Validate:         validateCreate,
			ValidateUpdate:   validateUpdate,
			ValidateName:     ValidateName,
			Warnings:         warnings,
		},
		DeleteStrategy: resource.DeleteStrategy[*corev1.Pod]{ReturnDeletedObject: true, GracePeriod: gracePeriod},
		Table: resource.Table[*corev1.Pod]{
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
			Row:        row,
			Conditions: rowConditions,
		},
		FieldSelectors: resource.FieldSelectors[*corev1.Pod]{
			SelectableField: selectableField,
			Fields: []string{
				"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
				"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
			},
			Indexed: []string{"spec.nodeName"},
		},
		Subresources: subresources(),
	})
}

// ValidateName checks the name of a pod, or of an object that creates pods.
func ValidateName(name string, prefix bool) []string {
	return validation.NameIsDNSSubdomain(name, prefix)
}

func subresources() []resource.SubresourceDefinition[corev1.Pod, *corev1.Pod] {
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
			PrepareForUpdate: prepareResize,
			ValidateUpdate:   validateResize,
		},
	}
}

// selectableField returns the value of a field that field selectors can name.
func selectableField(p *corev1.Pod, field string) string {
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

// prepareForCreate clears the fields of disabled features, and sets the initial
// status with the quality of service class that follows from the rest.
func prepareForCreate(r *resource.RequestContext, p *corev1.Pod) {
	feature.Drop(r.Features, gatedFields(), &p.Spec, nil)
	DefaultPodLevelResources(r.Features, &p.Spec)
	p.Status = corev1.PodStatus{} // QOSClass would return the class that the client sent
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podquery.QOSClass(p)}
	mergeLabelKeys(r.Features, p)
	addSchedulingGatedCondition(p)
	applyAppArmorAnnotations(r, p)
}

// prepareForUpdate clears the fields of disabled features that the pod did not have, and
// keeps its resources as a whole for clients that do not know them.
func prepareForUpdate(r *resource.RequestContext, p, old *corev1.Pod) {
	keepPodLevelResources(r.Features, &p.Spec, &old.Spec)
	if !r.Features.Enabled(feature.PodLevelResourcesFixDefaulting) {
		DefaultPodLevelResources(r.Features, &p.Spec)
	}
	feature.Drop(r.Features, gatedFields(), &p.Spec, &old.Spec)
}

// addSchedulingGatedCondition sets the condition PodScheduled to false if the
// pod has scheduling gates (KEP-3521).
func addSchedulingGatedCondition(p *corev1.Pod) {
	if len(p.Spec.SchedulingGates) == 0 {
		return
	}
	if podquery.Condition(&p.Status, corev1.PodScheduled) != nil {
		return
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type:    corev1.PodScheduled,
		Status:  corev1.ConditionFalse,
		Reason:  corev1.PodReasonSchedulingGated,
		Message: "Scheduling is blocked due to non-empty scheduling gates",
	})
}

// gracePeriod returns the seconds that a pod has to stop: 0 if it has no node
// or has finished.
func gracePeriod(p *corev1.Pod, options *metav1.DeleteOptions) int64 {
	var period int64
	switch {
	case options != nil && options.GracePeriodSeconds != nil:
		period = *options.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	ended := podquery.IsFinished(p)
	switch {
	case p.Spec.NodeName == "" || ended:
		return 0
	case period < 0:
		return 1
	}
	return period
}

func validateCreate(r *resource.RequestContext, p *corev1.Pod) field.ErrorList {
	errs := validateBody(p, TemplateOptions(r, nil))
	return append(errs, validateProfilesAgree(p.Annotations, &p.Spec, field.NewPath("spec"))...)
}

// ValidateCreate checks a pod that is complete but not stored: its metadata and
// its spec, after [Default]. The kubelet asks it about static pods, which reach
// it without the API server.
func ValidateCreate(p *corev1.Pod, features *feature.Set) field.ErrorList {
	errs := resource.ValidateNamedMetadata(p, true, ValidateName)
	return append(errs, validateCreate(&resource.RequestContext{Features: features}, p)...)
}

func asTemplate(p *corev1.Pod) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

func row(p *corev1.Pod, now time.Time) []any {
	summary := summarize(p, now)
	ip := p.Status.PodIP
	if ip == "" && len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", summary.ready, summary.total), summary.status, summary.restarts,
		resource.Age(p.CreationTimestamp, now), cmp.Or(ip, printers.None), cmp.Or(p.Spec.NodeName, printers.None),
		cmp.Or(p.Status.NominatedNodeName, printers.None), readinessGates(p),
	}
}

// rowConditions says that a pod has ended.
func rowConditions(p *corev1.Pod) []metav1.TableRowCondition {
	message := ""
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		message = "The pod has completed successfully."
	case corev1.PodFailed:
		message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(p.Status.Phase), Message: message}}
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return printers.None
	}
	met := 0
	for _, gate := range p.Spec.ReadinessGates {
		if podquery.HasCondition(&p.Status, gate.ConditionType) {
			met++
		}
	}
	return fmt.Sprintf("%d/%d", met, len(p.Spec.ReadinessGates))
}
