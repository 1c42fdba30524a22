package controllerruntime

import (
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// Greeting is a custom resource. Its controller writes the greeting that the
// spec describes to the status.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GreetingSpec   `json:"spec,omitempty"`
	Status GreetingStatus `json:"status,omitempty"`
}

// GreetingSpec describes the greeting. Times defaults to 1 and cannot decrease.
type GreetingSpec struct {
	Name  string `json:"name"`
	Times *int32 `json:"times,omitempty"`
}

// GreetingStatus is the last greeting, for the observed generation.
type GreetingStatus struct {
	Said               string            `json:"said,omitempty"`
	Times              int32             `json:"times,omitempty"`
	Counts             map[string]string `json:"counts,omitempty"`
	ObservedGeneration int64             `json:"observedGeneration,omitempty"`
}

// GreetingList is a list of Greetings.
type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Greeting `json:"items"`
}

var greetingVersion = schema.GroupVersion{Group: "clients.example.com", Version: "v1"}

func addGreetings(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(greetingVersion, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, greetingVersion)
	return nil
}

func (g *Greeting) DeepCopyObject() runtime.Object {
	c := *g
	c.ObjectMeta = *g.ObjectMeta.DeepCopy()
	if g.Spec.Times != nil {
		c.Spec.Times = ptr.To(*g.Spec.Times)
	}
	c.Status.Counts = maps.Clone(g.Status.Counts)
	return &c
}

func (l *GreetingList) DeepCopyObject() runtime.Object {
	c := *l
	c.ListMeta = *l.ListMeta.DeepCopy()
	c.Items = make([]Greeting, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*Greeting)
	}
	return &c
}

// greetingDefinition is the definition of Greeting, with a status and a scale
// subresource, a default, a validation rule and a selectable field.
func greetingDefinition() *apiextensionsv1.CustomResourceDefinition {
	type props = map[string]apiextensionsv1.JSONSchemaProps
	text, number := apiextensionsv1.JSONSchemaProps{Type: "string"}, apiextensionsv1.JSONSchemaProps{Type: "integer"}
	times := apiextensionsv1.JSONSchemaProps{
		Type: "integer", Format: "int32", Minimum: ptr.To(0.0), Default: &apiextensionsv1.JSON{Raw: []byte("1")},
		XValidations: apiextensionsv1.ValidationRules{{Rule: "self >= oldSelf", Message: "greetings cannot be taken back"}},
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "greetings." + greetingVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: greetingVersion.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "greetings", Singular: "greeting", Kind: "Greeting", ListKind: "GreetingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: greetingVersion.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.times", StatusReplicasPath: ".status.times"},
				},
				SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.name"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: props{
						"spec": {Type: "object", Required: []string{"name"}, Properties: props{"name": text, "times": times}},
						"status": {Type: "object", Properties: props{
							"said": text, "times": number, "observedGeneration": number,
							"counts": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &text}},
						}},
					},
				}},
			}},
		},
	}
}
