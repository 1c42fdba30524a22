package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
)

// eventTTL is how long an event is kept unless --event-ttl says otherwise.
const eventTTL = time.Hour

// Events is the resource events, served in the core group and in
// events.k8s.io. Both serve the same objects in different forms.
func Events() *resource.Resource {
	hub := corev1.SchemeGroupVersion.WithKind("Event")
	return resource.Define(resource.Definition[corev1.Event, *corev1.Event]{
		GroupVersion:         corev1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "Event", Plural: "events", ShortNames: []string{"ev"}},
		Other:                []resource.Version{newEvents(hub)},
		Storage:              resource.Storage{TTL: eventTTL},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*corev1.Event]{
			ValidateName:        func(string, bool) []string { return nil },
			Validate:            validateEvent,
			ValidateUpdate:      validateEventUpdate,
			AllowCreateOnUpdate: true,
		},
		Table: resource.Table[*corev1.Event]{
			Columns: []metav1.TableColumnDefinition{
				resource.Column("Last Seen", "string", corev1.Event{}.SwaggerDoc()["lastTimestamp"]),
				resource.Column("Type", "string", corev1.Event{}.SwaggerDoc()["type"]),
				resource.Column("Reason", "string", corev1.Event{}.SwaggerDoc()["reason"]),
				resource.Column("Object", "string", corev1.Event{}.SwaggerDoc()["involvedObject"]),
				resource.WideColumn("Subobject", "string", corev1.Event{}.InvolvedObject.SwaggerDoc()["fieldPath"]),
				resource.WideColumn("Source", "string", corev1.Event{}.SwaggerDoc()["source"]),
				resource.Column("Message", "string", corev1.Event{}.SwaggerDoc()["message"]),
				resource.WideColumn("First Seen", "string", corev1.Event{}.SwaggerDoc()["firstTimestamp"]),
				resource.WideColumn("Count", "string", corev1.Event{}.SwaggerDoc()["count"]),
				wideNameColumn(),
			},
			Row: eventRow,
		},
		FieldSelectors: resource.FieldSelectors[*corev1.Event]{
			SelectableFields: eventFields,
			Fields: []string{
				"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
				"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
				"reason", "reportingComponent", "source", "type",
			},
			Indexed: []string{"involvedObject.name"},
		},
	})
}

// newEvents is the version of events.k8s.io, whose fields have other names.
func newEvents(hub schema.GroupVersionKind) resource.Version {
	v := resource.OtherVersion(eventsv1.SchemeGroupVersion.WithKind("Event"), hub, nil, eventToCore, eventFromCore)
	v.Priorities = resource.Priorities{Group: 17750}
	v.FieldLabels = map[string]string{"reason": "reason", "type": "type", "reportingController": "reportingComponent"}
	for _, of := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		v.FieldLabels["regarding."+of] = "involvedObject." + of
	}
	return v
}

func wideNameColumn() metav1.TableColumnDefinition {
	column := resource.NameColumn()
	column.Priority = 1
	return column
}

func eventRow(e *corev1.Event, now time.Time) []any {
	first := elapsed(e.FirstTimestamp.Time, now)
	if e.FirstTimestamp.IsZero() {
		first = elapsed(e.EventTime.Time, now)
	}
	last, count := first, e.Count
	switch {
	case e.Series != nil:
		last, count = elapsed(e.Series.LastObservedTime.Time, now), e.Series.Count
	case !e.LastTimestamp.IsZero():
		last = elapsed(e.LastTimestamp.Time, now)
	}
	if count == 0 {
		count = 1
	}
	object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
	if e.InvolvedObject.Name == "" {
		object = strings.ToLower(e.InvolvedObject.Kind)
	}
	return []any{
		last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, eventSource(e),
		strings.TrimSpace(e.Message), first, int64(count), e.Name,
	}
}

func elapsed(t, now time.Time) string {
	return resource.Age(metav1.NewTime(t), now)
}

// eventSource returns the component and the host that reported the event.
func eventSource(e *corev1.Event) string {
	component, host := e.Source.Component, e.Source.Host
	if component == "" {
		component = e.ReportingController
	}
	if host == "" {
		host = e.ReportingInstance
	}
	if host == "" {
		return component
	}
	return fmt.Sprintf("%s, %s", component, host)
}

func eventFields(e *corev1.Event) fields.Set {
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	return fields.Set{
		"involvedObject.kind":            e.InvolvedObject.Kind,
		"involvedObject.namespace":       e.InvolvedObject.Namespace,
		"involvedObject.name":            e.InvolvedObject.Name,
		"involvedObject.uid":             string(e.InvolvedObject.UID),
		"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         source,
		"type":                           e.Type,
	}
}

// eventToCore renames the fields of an event of events.k8s.io. It and
// eventFromCore lose nothing.
func eventToCore(e *eventsv1.Event) *corev1.Event {
	core := &corev1.Event{
		ObjectMeta:          e.ObjectMeta,
		InvolvedObject:      e.Regarding,
		Reason:              e.Reason,
		Message:             e.Note,
		Source:              e.DeprecatedSource,
		FirstTimestamp:      e.DeprecatedFirstTimestamp,
		LastTimestamp:       e.DeprecatedLastTimestamp,
		Count:               e.DeprecatedCount,
		Type:                e.Type,
		EventTime:           e.EventTime,
		Action:              e.Action,
		Related:             e.Related,
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
	}
	if e.Series != nil {
		core.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return core
}

func eventFromCore(core *corev1.Event) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta:               core.ObjectMeta,
		EventTime:                core.EventTime,
		ReportingController:      core.ReportingController,
		ReportingInstance:        core.ReportingInstance,
		Action:                   core.Action,
		Reason:                   core.Reason,
		Regarding:                core.InvolvedObject,
		Related:                  core.Related,
		Note:                     core.Message,
		Type:                     core.Type,
		DeprecatedSource:         core.Source,
		DeprecatedFirstTimestamp: core.FirstTimestamp,
		DeprecatedLastTimestamp:  core.LastTimestamp,
		DeprecatedCount:          core.Count,
	}
	if core.Series != nil {
		e.Series = &eventsv1.EventSeries{Count: core.Series.Count, LastObservedTime: core.Series.LastObservedTime}
	}
	return e
}
