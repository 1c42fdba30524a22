package extension

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

var groupVersion = schema.GroupVersion{Group: "orchard.example.com", Version: "v1alpha1"}

// Apple is the resource that the extension API server stores.
type Apple struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AppleSpec `json:"spec,omitempty"`
}

// AppleSpec describes an apple.
type AppleSpec struct {
	Variety string `json:"variety,omitempty"`
}

// AppleList is a list of apples.
type AppleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Apple `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (a *Apple) DeepCopyObject() runtime.Object {
	out := *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *AppleList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Apple))
	}
	return &out
}

// newScheme returns a scheme with apples and the kinds that every API server
// needs.
func newScheme() (*runtime.Scheme, serializer.CodecFactory) {
	s := runtime.NewScheme()
	s.AddKnownTypes(groupVersion, &Apple{}, &AppleList{})
	s.AddKnownTypes(schema.GroupVersion{Group: groupVersion.Group, Version: runtime.APIVersionInternal}, &Apple{}, &AppleList{})
	metav1.AddToGroupVersion(s, groupVersion)
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s, serializer.NewCodecFactory(s)
}

const definitionPrefix = "com.example.orchard.v1alpha1."

// OpenAPIModelName names the definition.
func (Apple) OpenAPIModelName() string { return definitionPrefix + "Apple" }

// OpenAPIModelName names the definition.
func (AppleSpec) OpenAPIModelName() string { return definitionPrefix + "AppleSpec" }

// OpenAPIModelName names the definition.
func (AppleList) OpenAPIModelName() string { return definitionPrefix + "AppleList" }

// definitions are the OpenAPI definitions, as a generator would write them.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := aggregatoropenapi.GetOpenAPIDefinitions(ref)
	text := func(description string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Description: description, Type: []string{"string"}, Format: ""}}
	}
	to := func(name string) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Default: map[string]any{}, Ref: ref(name)}}
	}
	object := func(description string, properties map[string]spec.Schema, needs ...string) common.OpenAPIDefinition {
		return common.OpenAPIDefinition{
			Schema:       spec.Schema{SchemaProps: spec.SchemaProps{Description: description, Type: []string{"object"}, Properties: properties}},
			Dependencies: needs,
		}
	}
	objectMeta, listMeta := metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()
	apple, appleSpec := Apple{}.OpenAPIModelName(), AppleSpec{}.OpenAPIModelName()
	all[appleSpec] = object("AppleSpec says what an apple is like.", map[string]spec.Schema{"variety": text("The variety that the apple is of.")})
	all[apple] = object("Apple is what grows in the orchard.", map[string]spec.Schema{
		"kind": text("The kind."), "apiVersion": text("The version."), "metadata": to(objectMeta), "spec": to(appleSpec),
	}, objectMeta, appleSpec)
	items := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &spec.Schema{
		SchemaProps: spec.SchemaProps{Default: map[string]any{}, Ref: ref(apple)},
	}}}}
	all[AppleList{}.OpenAPIModelName()] = object("AppleList is a list of apples.", map[string]spec.Schema{
		"kind": text("The kind."), "apiVersion": text("The version."), "metadata": to(listMeta), "items": items,
	}, listMeta, apple)
	return all
}

func namer(s *runtime.Scheme) *openapi.DefinitionNamer { return openapi.NewDefinitionNamer(s) }
