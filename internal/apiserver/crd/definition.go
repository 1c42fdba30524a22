package crd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"github.com/coracle-io/coracle/internal/resource"
)

// definition is a served CustomResourceDefinition. It is immutable; a change
// replaces it.
type definition struct {
	crd         *apiextensionsv1.CustomResourceDefinition
	uid         types.UID
	terminating bool
	versions    map[string]*version
	storage     *version
	views       []*resource.Resource // one per served version
	stored      *resource.Resource   // by which the watch cache decodes
	webhook     func() (runtime.ObjectConvertor, error)
}

// same reports whether define would return the same for crd.
func (d *definition) same(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return d.uid == crd.UID && d.crd.Generation == crd.Generation && d.terminating == (crd.DeletionTimestamp != nil) &&
		equality.Semantic.DeepEqual(d.crd.Status.AcceptedNames, crd.Status.AcceptedNames)
}

// define builds the resources of an established CustomResourceDefinition. It
// compiles nothing. Later compilations that panic are counted for the component
// of ctx.
func (s *Server) define(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) *definition {
	d := &definition{crd: crd, uid: crd.UID, terminating: crd.DeletionTimestamp != nil, versions: map[string]*version{}}
	d.webhook = sync.OnceValues(func() (runtime.ObjectConvertor, error) { return newWebhook(crd, s.converters) })
	for i := range crd.Spec.Versions {
		v := newVersion(ctx, d, &crd.Spec.Versions[i])
		d.versions[v.spec.Name] = v
		if v.spec.Storage {
			d.storage = v
		}
	}
	d.stored = d.resource(d.storage)
	for i := range crd.Spec.Versions {
		switch v := d.versions[crd.Spec.Versions[i].Name]; {
		case v == d.storage && v.spec.Served:
			d.views = append(d.views, d.stored)
		case v.spec.Served:
			d.views = append(d.views, d.resource(v))
		}
	}
	return d
}

func newWebhook(crd *apiextensionsv1.CustomResourceDefinition, converters func() (*conversion.CRConverterFactory, error)) (runtime.ObjectConvertor, error) {
	factory, err := converters()
	if err != nil {
		return nil, err
	}
	safe, _, err := factory.NewConverter(crd)
	return safe, err
}

// convertsByWebhook reports whether a webhook converts objects between versions.
func (d *definition) convertsByWebhook() bool {
	c := d.crd.Spec.Conversion
	return c != nil && c.Strategy == apiextensionsv1.WebhookConverter
}

func (d *definition) groupVersions() []schema.GroupVersion {
	var out []schema.GroupVersion
	for _, r := range d.views {
		out = append(out, r.Hub().GroupVersion)
	}
	return out
}

// view returns the resource of a served version, or nil.
func (d *definition) view(name string) *resource.Resource {
	for _, r := range d.views {
		if r.Hub().Version == name {
			return r
		}
	}
	return nil
}

// resource builds the resource for one of the served versions, since columns,
// subresources and rules differ between versions. Objects in memory have that
// version; the others are only decoded from the store.
func (d *definition) resource(shown *version) *resource.Resource {
	names := d.crd.Status.AcceptedNames
	r := &resource.Resource{
		Group: d.crd.Spec.Group,
		Names: resource.Names{
			Kind: names.Kind, ListKind: names.ListKind, Plural: names.Plural, Singular: names.Singular,
			ShortNames: names.ShortNames, Categories: names.Categories,
		},
		Namespaced: d.crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Verbs:      []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		Storage: resource.Storage{
			Path:     d.crd.Spec.Group + "/" + names.Plural,
			Version:  d.storage.gvk().GroupVersion(),
			ToStored: d.storage.toStored,
		},
		Strategy: resource.Strategy[resource.Object]{
			PrepareForCreate:          shown.prepareForCreate,
			PrepareForUpdate:          shown.prepareForUpdate,
			Validate:                  shown.validate,
			ValidateUpdate:            shown.validateUpdate,
			Warnings:                  warnings,
			ValidateName:              validation.NameIsDNSSubdomain,
			ForbidUnconditionalUpdate: true,
		},
		DeleteStrategy: resource.DeleteStrategy[resource.Object]{DefaultPropagation: metav1.DeletePropagationBackground},
		Subresources:   shown.subresources(),
	}
	shown.defineTable(r)
	shown.defineSelection(r)
	if d.terminating {
		r.Strategy.ForbidCreate = "create not allowed while custom resource definition is terminating"
	}
	for i := range d.crd.Spec.Versions {
		v := d.versions[d.crd.Spec.Versions[i].Name]
		r.Versions = append(r.Versions, v.version(v == shown))
	}
	return r
}

// schemaOf returns the schema for an object of apiVersion and kind; nil for an
// undefined version. ofKind is false for an object of another kind.
func (d *definition) schemaOf(apiVersion, kind string) (shape *structuralschema.Structural, ofKind bool, err error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Group != d.crd.Spec.Group || kind != d.crd.Status.AcceptedNames.Kind {
		return nil, false, err
	}
	v := d.versions[gv.Version]
	if v == nil {
		return nil, true, nil
	}
	c, err := v.compiled()
	if err != nil {
		return nil, true, err
	}
	return c.schema, true, nil
}

// deprecation returns the warning of a deprecated version; "" for others.
func (d *definition) deprecation(v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	switch {
	case !v.Deprecated:
		return ""
	case v.DeprecationWarning != nil:
		return *v.DeprecationWarning
	}
	group, kind := d.crd.Spec.Group, d.crd.Spec.Names.Kind
	message := fmt.Sprintf("%s/%s %s is deprecated", group, v.Name, kind)
	var newer []string
	for _, other := range d.crd.Spec.Versions {
		if other.Served && !other.Deprecated && apimachineryversion.CompareKubeAwareVersionStrings(v.Name, other.Name) < 0 {
			newer = append(newer, other.Name)
		}
	}
	if len(newer) == 0 {
		return message
	}
	best := slices.MaxFunc(newer, func(a, b string) int {
		return cmp.Compare(apimachineryversion.CompareKubeAwareVersionStrings(a, b), 0)
	})
	return fmt.Sprintf("%s; use %s/%s %s", message, group, best, kind)
}
