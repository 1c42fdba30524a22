package crd

import (
	"context"
	"fmt"
	"sync"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/apiserver/recovery"
	"github.com/coracle-io/coracle/internal/resource"
)

// version is one version of a definition.
type version struct {
	of       *definition
	spec     *apiextensionsv1.CustomResourceDefinitionVersion
	compiled func() (*compiled, error) // built at first use
}

// compiled is a compiled schema of a version.
type compiled struct {
	schema    *structuralschema.Structural // nil for a version without a schema
	validator validation.SchemaValidator
	status    validation.SchemaValidator // for .status; nil if it has no schema
	cel       *cel.Validator             // nil without rules
	// multiplies means that defaults can be larger than the objects.
	multiplies bool
}

func newVersion(ctx context.Context, d *definition, spec *apiextensionsv1.CustomResourceDefinitionVersion) *version {
	v := &version{of: d, spec: spec}
	v.compiled = sync.OnceValues(func() (c *compiled, err error) {
		err = recovery.Call(ctx, fmt.Sprintf("the schema of %s cannot be used", v.gvk()), func() error {
			c, err = v.compile()
			return err
		})
		return c, err
	})
	return v
}

func (v *version) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: v.of.crd.Spec.Group, Version: v.spec.Name, Kind: v.of.crd.Status.AcceptedNames.Kind}
}

// preserves reports whether fields outside the schema are kept.
func (v *version) preserves() bool { return v.of.crd.Spec.PreserveUnknownFields }

// version returns the resource.Version. In the resource of this version it is
// the hub; in others it is only decoded from the store.
func (v *version) version(hub bool) resource.Version {
	served := resource.Version{
		GroupVersion: v.gvk().GroupVersion(),
		Hub:          hub,
		Unserved:     !hub || !v.spec.Served,
		New:          v.new,
		Default:      func(obj resource.Object) { _ = v.setDefaults(obj.(*unstructured.Unstructured)) },
		ToHub:        func(obj resource.Object) resource.Object { return obj },
		FromHub:      func(obj resource.Object) resource.Object { return obj },
		Deprecated:   v.of.deprecation(v.spec),
		FieldLabels:  v.fieldLabels(),
		Coerce: func(obj resource.Object) ([]string, error) {
			return v.coerce(obj.(*unstructured.Unstructured), fromClient)
		},
		FromStored: v.fromStored,
		Convert:    v.convert,
	}
	if v.of.convertsByWebhook() {
		served.ConvertAll = v.convertAll
	}
	return served
}

func (v *version) new() resource.Object {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v.gvk())
	return u
}

// compile compiles the version's schema. A panic of the libraries is returned
// as an error, since it must not end the process, which serves all definitions.
func (v *version) compile() (*compiled, error) {
	validationSchema, err := internalSchema(v.spec)
	if err != nil {
		return nil, err
	}
	c := &compiled{}
	var props *apiextensionsinternal.JSONSchemaProps
	if validationSchema != nil {
		props = validationSchema.OpenAPIV3Schema
		if c.schema, err = v.structural(props); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", v.gvk(), err)
		}
		if statusSchema, ok := props.Properties["status"]; ok {
			if c.status, _, err = validation.NewSchemaValidator(&statusSchema); err != nil {
				return nil, fmt.Errorf("schema of the status of %s: %w", v.gvk(), err)
			}
		}
	}
	if c.validator, _, err = validation.NewSchemaValidator(props); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", v.gvk(), err)
	}
	c.multiplies = multiplies(c.schema, false)
	celamount.Bound()
	c.cel = cel.NewValidator(c.schema, true, celconfig.PerCallLimit)
	return c, nil
}

// structural returns the structural schema with pruned defaults. Old
// definitions that preserve unknown fields may have none.
func (v *version) structural(props *apiextensionsinternal.JSONSchemaProps) (*structuralschema.Structural, error) {
	s, err := structuralschema.NewStructural(props)
	switch {
	case err != nil && v.preserves():
		return nil, nil
	case err != nil || v.preserves():
		return s, err
	}
	s = s.DeepCopy()
	return s, defaulting.PruneDefaults(s)
}

// origin is where an object comes from, which decides how strictly it is
// handled.
type origin int8

const (
	fromClient origin = iota // dropped fields are reported
	fromStore                // invalid metadata is dropped
	fromConversion
)

// coerce does what decoding does to a typed object: it drops unknown fields and
// nulls, and gives metadata its types. unknown lists the dropped fields. An
// object of another kind keeps its fields, and one of another version is
// handled by that version's schema.
func (v *version) coerce(u *unstructured.Unstructured, from origin) (unknown []string, err error) {
	kind, foundKind, err := unstructured.NestedString(u.Object, "kind")
	if err != nil {
		return nil, err
	}
	apiVersion, foundVersion, err := unstructured.NestedString(u.Object, "apiVersion")
	if err != nil {
		return nil, err
	}
	meta, foundMeta, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields: from == fromStore, ReturnUnknownFieldPaths: from == fromClient,
	})
	if err != nil {
		return nil, err
	}
	shape, ofKind, err := v.of.schemaOf(apiVersion, kind)
	if err != nil {
		return nil, err
	}
	if ofKind {
		paths, err := v.prune(u, shape, from)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, paths...)
	}
	if foundKind {
		u.SetKind(kind)
	}
	if foundVersion {
		u.SetAPIVersion(apiVersion)
	}
	if foundMeta {
		if from == fromStore && meta.Generation == 0 {
			meta.Generation = 1
		}
		if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
			return nil, err
		}
	}
	return unknown, nil
}

// prune drops the fields that a schema does not have.
func (v *version) prune(u *unstructured.Unstructured, shape *structuralschema.Structural, from origin) (unknown []string, err error) {
	if !v.preserves() {
		unknown = pruning.PruneWithOptions(u.Object, shape, true, structuralschema.UnknownFieldPathOptions{
			TrackUnknownFieldPaths: from == fromClient,
		})
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, shape)
	}
	fault, paths := objectmeta.CoerceWithOptions(nil, u.Object, shape, false, objectmeta.CoerceOptions{
		DropInvalidFields: from == fromStore, ReturnUnknownFieldPaths: from == fromClient,
	})
	if fault != nil {
		return nil, fault
	}
	return append(unknown, paths...), nil
}

// defaultsFit reports whether the missing defaults of an object are within the
// bound.
func (c *compiled) defaultsFit(u *unstructured.Unstructured) bool {
	left := room(maxDefaulted)
	return !c.multiplies || left.fill(u.Object, c.schema)
}

// setDefaults sets the schema's defaults. It sets none if they exceed the
// bound; validation then refuses the object.
func (v *version) setDefaults(u *unstructured.Unstructured) error {
	c, err := v.compiled()
	if err == nil && c.schema != nil && c.defaultsFit(u) {
		defaulting.Default(u.Object, c.schema)
	}
	return err
}

// fromStored returns a stored object in its version, since its conversion may
// need a webhook that runs in this cluster.
func (v *version) fromStored(obj resource.Object) (resource.Object, error) {
	u := obj.(*unstructured.Unstructured)
	if _, err := v.coerce(u, fromStore); err != nil {
		return nil, err
	}
	return u, v.setDefaults(u)
}

// convert converts an object of any version to this version.
func (v *version) convert(obj resource.Object) (resource.Object, error) {
	u := obj.(*unstructured.Unstructured)
	if u.GroupVersionKind() == v.gvk() {
		return u, nil
	}
	if v.of.convertsByWebhook() {
		out, err := v.ask(u)
		if err != nil {
			return nil, err
		}
		return v.converted(out)
	}
	out := u.DeepCopy()
	out.SetGroupVersionKind(v.gvk())
	return v.converted(out)
}

// ask returns what the webhook makes of an object, or of a list, in this version.
func (v *version) ask(obj runtime.Object) (runtime.Object, error) {
	webhook, err := v.of.webhook()
	if err != nil {
		return nil, err
	}
	return webhook.ConvertToVersion(obj, v.gvk().GroupVersion())
}

// converted brings an object that has been converted into the form that its schema knows.
func (v *version) converted(obj runtime.Object) (resource.Object, error) {
	out, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("conversion webhook for %s returned a %T", v.gvk(), obj)
	}
	_, err := v.coerce(out, fromConversion)
	return out, err
}

// convertAll converts objects of other versions by one call of the webhook. In errors and
// metrics, the list of them has the kind of the first.
func (v *version) convertAll(objs []resource.Object) ([]resource.Object, error) {
	if len(objs) == 1 {
		out, err := v.convert(objs[0])
		return []resource.Object{out}, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(objs[0].GetObjectKind().GroupVersionKind())
	for _, obj := range objs {
		list.Items = append(list.Items, *obj.(*unstructured.Unstructured))
	}
	answer, err := v.ask(list)
	if err != nil {
		return nil, err
	}
	answered, ok := answer.(*unstructured.UnstructuredList)
	if !ok {
		return nil, fmt.Errorf("conversion webhook for %s returned a %T", v.gvk(), answer)
	}
	out := make([]resource.Object, len(answered.Items))
	for i := range answered.Items {
		if out[i], err = v.converted(&answered.Items[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// toStored converts an object of any version to this one, which is stored. The
// result has the defaults that it would get when it is read from the store, so
// that the objects in memory are those that a restart would find.
func (v *version) toStored(obj resource.Object) (resource.Object, error) {
	out, err := v.convert(obj)
	if err != nil || out == obj {
		return out, err
	}
	return out, v.setDefaults(out.(*unstructured.Unstructured))
}

// in returns obj in this version, for rules that cannot fail, or obj itself if
// it cannot be converted. Validation reports that.
func (v *version) in(obj resource.Object) *unstructured.Unstructured {
	if converted, err := v.convert(obj); err == nil {
		return converted.(*unstructured.Unstructured)
	}
	return obj.(*unstructured.Unstructured)
}
