package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of an event's strings, in characters.
const (
	maxReportingInstance = 128
	maxAction            = 128
	maxReason            = 128
	maxMessage           = 1024
)

// strictEvent reports whether the client uses events.k8s.io/v1, whose events
// must be complete. The core version accepts what old clients send.
func strictEvent(r *resource.RequestContext) bool {
	return r.GroupVersion == eventsv1.SchemeGroupVersion
}

func validateEvent(r *resource.RequestContext, e *corev1.Event) field.ErrorList {
	errs := validateEventFields(r, e)
	if !strictEvent(r) {
		return errs
	}
	if e.Name != "" {
		errs = append(errs, validators.Subdomain(field.NewPath("metadata", "name"), e.Name)...)
	}
	errs = append(errs, validateEventSeries(e)...)
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	errs = append(errs, validateEventType(e)...)
	unset := func(name string, isUnset bool) {
		if !isUnset {
			errs = append(errs, field.Invalid(field.NewPath(name), "", "needs to be unset"))
		}
	}
	unset("firstTimestamp", e.FirstTimestamp.IsZero())
	unset("lastTimestamp", e.LastTimestamp.IsZero())
	unset("count", e.Count == 0)
	unset("source", e.Source == corev1.EventSource{})
	return errs
}

func validateEventSeries(e *corev1.Event) field.ErrorList {
	if e.Series == nil {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("series")
	if e.Series.Count < 2 {
		errs = append(errs, field.Invalid(path.Child("count"), "", "should be at least 2"))
	}
	if e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(path.Child("lastObservedTime"), ""))
	}
	return errs
}

func validateEventType(e *corev1.Event) field.ErrorList {
	if e.Type == corev1.EventTypeNormal || e.Type == corev1.EventTypeWarning {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type))}
}

// validateEventFields checks the rules for every event: it is in the namespace
// of its object and, if it has an eventTime, names its reporter.
func validateEventFields(r *resource.RequestContext, e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	involved := field.NewPath("involvedObject", "namespace")
	namespace := e.InvolvedObject.Namespace
	complete := !e.EventTime.IsZero()
	matches := e.Namespace == namespace || complete
	if namespace == "" {
		matches = e.Namespace == metav1.NamespaceNone || e.Namespace == metav1.NamespaceDefault ||
			complete && e.Namespace == metav1.NamespaceSystem
	}
	if !matches {
		errs = append(errs, field.Invalid(involved, namespace, "does not match event.namespace"))
	}
	if !e.EventTime.IsZero() {
		errs = append(errs, validateEventAttribution(r, e)...)
	}
	return append(errs, validators.Subdomain(field.NewPath("namespace"), e.Namespace)...)
}

func validateEventAttribution(r *resource.RequestContext, e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	controller := field.NewPath("reportingController")
	if !strictEvent(r) {
		controller = field.NewPath("reportingComponent")
	}
	limited := func(name, value string, most int) {
		if value == "" {
			errs = append(errs, field.Required(field.NewPath(name), ""))
		} else if len(value) > most {
			errs = append(errs, field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %v characters", most)))
		}
	}
	errs = append(errs, validators.Required(controller, e.ReportingController)...)
	errs = append(errs, validators.Problems(controller, e.ReportingController, utilvalidation.IsQualifiedName(e.ReportingController))...)
	limited("reportingInstance", e.ReportingInstance, maxReportingInstance)
	limited("action", e.Action, maxAction)
	limited("reason", e.Reason, maxReason)
	if len(e.Message) > maxMessage {
		errs = append(errs, field.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %v characters", maxMessage)))
	}
	return errs
}

// validateEventUpdate allows changes only to the series and the metadata of an
// event with an eventTime.
func validateEventUpdate(r *resource.RequestContext, e, old *corev1.Event) field.ErrorList {
	errs := validateEventFields(r, e)
	if !strictEvent(r) {
		return errs
	}
	if e.Series != nil && (old.Series == nil || !resource.Equal(e.Series, old.Series)) {
		errs = append(errs, validateEventSeries(e)...)
	}
	fixed := func(name string, value, old any) {
		errs = append(errs, validators.ImmutableValue(field.NewPath(name), value, old)...)
	}
	fixed("involvedObject", e.InvolvedObject, old.InvolvedObject)
	fixed("reason", e.Reason, old.Reason)
	fixed("reason", e.Reason, old.Reason) // upstream checks reason twice
	fixed("message", e.Message, old.Message)
	fixed("source", e.Source, old.Source)
	fixed("firstTimestamp", e.FirstTimestamp, old.FirstTimestamp)
	fixed("lastTimestamp", e.LastTimestamp, old.LastTimestamp)
	fixed("count", e.Count, old.Count)
	fixed("type", e.Type, old.Type)
	// The store keeps microseconds, so times that differ only in nanoseconds
	// are the same time.
	if e.EventTime.UnixMicro() != old.EventTime.UnixMicro() {
		errs = append(errs, validators.ImmutableValue(field.NewPath("eventTime"), e.EventTime, old.EventTime)...)
	}
	fixed("action", e.Action, old.Action)
	fixed("related", e.Related, old.Related)
	fixed("reportingController", e.ReportingController, old.ReportingController)
	fixed("reportingInstance", e.ReportingInstance, old.ReportingInstance)
	return errs
}
