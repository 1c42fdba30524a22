package crd

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/coracle-io/coracle/internal/resource"
)

func (v *version) hasStatus() bool {
	return v.spec.Subresources != nil && v.spec.Subresources.Status != nil
}

func (v *version) prepareForCreate(_ *resource.RequestContext, obj resource.Object) {
	u := obj.(*unstructured.Unstructured)
	if v.hasStatus() {
		delete(u.Object, "status")
	}
	u.SetGeneration(1)
}

// prepareForUpdate keeps the old status if the version has a status
// subresource, and increments the generation if anything but the metadata has
// changed.
func (v *version) prepareForUpdate(_ *resource.RequestContext, o, p resource.Object) {
	obj, old := o.(*unstructured.Unstructured), v.in(p)
	if v.hasStatus() {
		if status, ok := old.Object["status"]; ok {
			obj.Object["status"] = status
		} else {
			delete(obj.Object, "status")
		}
	}
	if !equality.Semantic.DeepEqual(withoutMetadata(obj), withoutMetadata(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func withoutMetadata(u *unstructured.Unstructured) map[string]any {
	content := make(map[string]any, len(u.Object))
	for name, value := range u.Object {
		if name != "metadata" {
			content[name] = value
		}
	}
	return content
}

// prepareStatus keeps everything but the status and its managed fields.
func (v *version) prepareStatus(_ *resource.RequestContext, o, p resource.Object) {
	obj, old := o.(*unstructured.Unstructured), v.in(p)
	status, ok := obj.Object["status"]
	managed := obj.GetManagedFields()
	revision := obj.GetResourceVersion()
	obj.Object = old.DeepCopy().Object
	obj.SetManagedFields(managed)
	obj.SetResourceVersion(revision)
	if ok {
		obj.Object["status"] = status
	} else {
		delete(obj.Object, "status")
	}
}

func (v *version) validate(r *resource.RequestContext, obj resource.Object) field.ErrorList {
	u := obj.(*unstructured.Unstructured)
	c, errs := v.ready(u)
	if len(errs) > 0 {
		return errs
	}
	errs = v.validateMetadata(u, nil)
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, c.validator)...)
	errs = append(errs, v.validateScale(u, true)...)
	errs = append(errs, objectmeta.Validate(context.Background(), nil, u.Object, c.schema, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.schema, u.Object)...)
	return append(errs, c.evaluate(r.Ends(), u, nil, errs)...)
}

func (v *version) validateUpdate(r *resource.RequestContext, obj, old resource.Object) field.ErrorList {
	return v.compare(r, obj, old, func(c *compiled, u, before *unstructured.Unstructured, correlated *common.CorrelatedObject) field.ErrorList {
		errs := validation.ValidateCustomResourceUpdate(nil, u.Object, before.Object, c.validator, validation.WithRatcheting(correlated))
		errs = append(errs, v.validateScale(u, true)...)
		return append(errs, objectmeta.Validate(context.Background(), nil, u.Object, c.schema, false)...)
	})
}

func (v *version) validateStatus(r *resource.RequestContext, obj, old resource.Object) field.ErrorList {
	return v.compare(r, obj, old, func(c *compiled, u, before *unstructured.Unstructured, correlated *common.CorrelatedObject) field.ErrorList {
		var errs field.ErrorList
		if status, ok := u.Object["status"]; ok && c.status != nil {
			var options []validation.ValidationOption
			if c.schema != nil {
				options = append(options, validation.WithRatcheting(correlated.Key("status")))
			}
			errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, before.Object["status"], c.status, options...)
		}
		return append(errs, v.validateScale(u, false)...)
	})
}

// compare applies the rules of an update with the old object. Errors of
// unchanged values are ignored (ratcheting, KEP-4008).
func (v *version) compare(
	r *resource.RequestContext, obj, old resource.Object,
	schema func(c *compiled, u, before *unstructured.Unstructured, correlated *common.CorrelatedObject) field.ErrorList,
) field.ErrorList {
	u := obj.(*unstructured.Unstructured)
	c, errs := v.ready(u)
	if len(errs) > 0 {
		return errs
	}
	converted, err := v.convert(old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("the stored object cannot be compared with: %w", err))}
	}
	before := converted.(*unstructured.Unstructured)
	correlated := common.NewCorrelatedObject(u.Object, before.Object, &model.Structural{Structural: c.schema})
	errs = v.validateMetadata(u, before)
	errs = append(errs, schema(c, u, before, correlated)...)
	if wrong := listtype.ValidateListSetsAndMaps(nil, c.schema, u.Object); len(wrong) > 0 &&
		len(listtype.ValidateListSetsAndMaps(nil, c.schema, before.Object)) == 0 {
		errs = append(errs, wrong...)
	}
	return append(errs, c.evaluate(r.Ends(), u, before, errs, cel.WithRatcheting(correlated))...)
}

// ready returns the compiled version if obj is of its kind.
func (v *version) ready(u *unstructured.Unstructured) (*compiled, field.ErrorList) {
	var errs field.ErrorList
	if kind := v.gvk().Kind; u.GetKind() != kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), fmt.Sprintf("must be %v", kind)))
	}
	if apiVersion := v.gvk().GroupVersion().String(); u.GetAPIVersion() != apiVersion {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), u.GetAPIVersion(), fmt.Sprintf("must be %v", apiVersion)))
	}
	c, err := v.compiled()
	if err != nil {
		errs = append(errs, field.InternalError(nil, err))
	} else if !c.defaultsFit(u) {
		errs = append(errs, tooManyDefaults())
	}
	return c, errs
}

func (v *version) validateMetadata(u, old *unstructured.Unstructured) field.ErrorList {
	path := field.NewPath("metadata")
	meta, errs := metadataOf(u)
	if len(errs) > 0 {
		return errs
	}
	namespaced := v.of.stored.Namespaced
	if old == nil {
		return apivalidation.ValidateObjectMetaDeclaratively(context.Background(), operation.Create, meta, nil, namespaced, apivalidation.NameIsDNSSubdomain, path, true)
	}
	before, errs := metadataOf(old)
	if len(errs) > 0 {
		return errs
	}
	return apivalidation.ValidateObjectMetaDeclaratively(context.Background(), operation.Update, meta, before, namespaced, nil, path, true)
}

func metadataOf(u *unstructured.Unstructured) (*metav1.ObjectMeta, field.ErrorList) {
	meta := &metav1.ObjectMeta{}
	switch raw := u.Object["metadata"].(type) {
	case nil:
	case map[string]any:
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, meta); err != nil {
			return nil, field.ErrorList{field.Invalid(field.NewPath("metadata"), raw, err.Error())}
		}
	default:
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata"), raw, fmt.Sprintf("expected map[string]interface{}, got %T", raw))}
	}
	return meta, nil
}

// blocks reports whether CEL rules cannot be evaluated after an error of this
// type.
func blocks(t field.ErrorType) bool {
	switch t {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// evaluate evaluates the CEL rules of an object unless an error so far prevents
// it. It ends with ctx.
func (c *compiled) evaluate(ctx context.Context, u, old *unstructured.Unstructured, found field.ErrorList, options ...cel.Option) field.ErrorList {
	if c.cel == nil {
		return nil
	}
	if slices.ContainsFunc(found, func(e *field.Error) bool { return blocks(e.Type) }) {
		return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
	}
	var before any
	if old != nil {
		before = old.Object
	}
	errs, _ := c.cel.Validate(ctx, nil, c.schema, u.Object, before, celconfig.RuntimeCELCostBudget, options...)
	return errs
}

// validateScale validates the fields of the Scale subresource.
func (v *version) validateScale(u *unstructured.Unstructured, withSpec bool) field.ErrorList {
	if v.spec.Subresources == nil || v.spec.Subresources.Scale == nil {
		return nil
	}
	s := v.spec.Subresources.Scale
	var errs field.ErrorList
	if withSpec {
		errs = validateReplicas(u, s.SpecReplicasPath)
	}
	errs = append(errs, validateReplicas(u, s.StatusReplicasPath)...)
	if s.LabelSelectorPath != nil {
		if selector, _, err := unstructured.NestedString(u.Object, steps(*s.LabelSelectorPath)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*s.LabelSelectorPath), selector, err.Error()))
		}
	}
	return errs
}

func validateReplicas(u *unstructured.Unstructured, path string) field.ErrorList {
	replicas, _, err := unstructured.NestedInt64(u.Object, steps(path)...)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(field.NewPath(path), replicas, err.Error())}
	case replicas < 0:
		return field.ErrorList{field.Invalid(field.NewPath(path), replicas, "should be a non-negative integer")}
	case replicas > math.MaxInt32:
		return field.ErrorList{field.Invalid(field.NewPath(path), replicas, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32))}
	}
	return nil
}

// warnings returns warnings for finalizers that an update adds without a
// domain.
func warnings(_ *resource.RequestContext, obj, old resource.Object) []string {
	var out []string
	path := field.NewPath("metadata", "finalizers")
	added := slices.Clone(obj.GetFinalizers())
	slices.Sort(added)
	for _, name := range slices.Compact(added) {
		if old != nil && slices.Contains(old.GetFinalizers(), name) {
			continue
		}
		for _, message := range utilvalidation.IsQualifiedName(name) {
			out = append(out, fmt.Sprintf("%s: %q: %s", path, name, message))
		}
		switch {
		case strings.Contains(name, "/"), name == metav1.FinalizerOrphanDependents, name == metav1.FinalizerDeleteDependents, name == string(corev1.FinalizerKubernetes):
		case strings.Contains(name, "."):
			out = append(out, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers", path, name))
		default:
			out = append(out, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers", path, name))
		}
	}
	return out
}
