package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// The labels of a job's pods without a domain, which older versions of the API
// had and clients still use.
const (
	legacyJobName       = "job-name"
	legacyControllerUID = "controller-uid"
)

func prepareJob(r *resource.RequestContext, j *batchv1.Job) {
	pod.DropDisabledTemplateFields(r.Features, &j.Spec.Template, nil)
	feature.Drop(r.Features, jobFields(), &j.Spec, nil)
	if j.Spec.PodFailurePolicy != nil {
		defaults.Absent(&j.Spec.PodFailurePolicy.Rules)
	}
	if !ptr.Deref(j.Spec.ManualSelector, false) {
		selectOwnPods(j)
	}
	if len(j.Labels) == 0 && len(metav1validation.ValidateLabels(j.Spec.Template.Labels, nil)) == 0 {
		j.Labels = j.Spec.Template.Labels
	}
}

// selectOwnPods sets the labels of the template and the selector so that the
// job selects only the pods that it creates. It keeps what the user set, which
// validation refuses if it differs.
func selectOwnPods(j *batchv1.Job) {
	template := &j.Spec.Template
	marked := map[string]string{}
	for key, value := range template.Labels {
		marked[key] = value
	}
	for key, value := range map[string]string{
		legacyJobName:              j.Name,
		batchv1.JobNameLabel:       j.Name,
		legacyControllerUID:        string(j.UID),
		batchv1.ControllerUidLabel: string(j.UID),
	} {
		if _, own := marked[key]; !own {
			marked[key] = value
		}
	}
	template.Labels = marked
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if _, own := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !own {
		matched := map[string]string{batchv1.ControllerUidLabel: string(j.UID)}
		for key, value := range j.Spec.Selector.MatchLabels {
			matched[key] = value
		}
		j.Spec.Selector.MatchLabels = matched
	}
}

// validateOwnPods checks that a new job without manual selector selects its own
// pods.
func validateOwnPods(j *batchv1.Job) field.ErrorList {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	expected := []struct{ key, value string }{
		{legacyControllerUID, string(j.UID)},
		{legacyJobName, j.Name},
		{batchv1.ControllerUidLabel, string(j.UID)},
		{batchv1.JobNameLabel, j.Name},
	}
	var errs field.ErrorList
	own := labels.Set{}
	p := field.NewPath("spec", "template", "metadata", "labels")
	for _, e := range expected {
		own[e.key] = e.value
		problem := fmt.Sprintf("must be '%s'", e.value)
		switch value, present := j.Spec.Template.Labels[e.key]; {
		case !present:
			errs = append(errs, field.Required(p.Key(e.key), problem))
		case value != e.value:
			errs = append(errs, field.Invalid(p.Key(e.key), j.Spec.Template.Labels, problem))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(own) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateJobSelector checks a selector. Values that are no labels are accepted if old has
// some, as older versions stored them.
func validateJobSelector(p *field.Path, s, old *batchv1.JobSpec) field.ErrorList {
	var errs field.ErrorList
	if s.Selector == nil {
		errs = append(errs, field.Required(p.Child("selector"), ""))
	}
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: old != nil && metav1validation.LabelSelectorHasInvalidLabelValue(old.Selector)}
	errs = append(errs, metav1validation.ValidateLabelSelector(s.Selector, options, p.Child("selector"))...)
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !selector.Matches(labels.Set(s.Template.Labels)) {
		errs = append(errs, field.Invalid(p.Child("template", "metadata", "labels"), s.Template.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}
