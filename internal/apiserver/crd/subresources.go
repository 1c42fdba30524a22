package crd

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
)

func scaleKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
}

// subresources returns the subresources of the version.
func (v *version) subresources() []resource.Subresource {
	declared := v.spec.Subresources
	if declared == nil {
		return nil
	}
	verbs := []string{"get", "patch", "update"}
	var out []resource.Subresource
	if declared.Status != nil {
		out = append(out, resource.Subresource{
			Name: "status", Verbs: verbs, PrepareForUpdate: v.prepareStatus, ValidateUpdate: v.validateStatus,
		})
	}
	if declared.Scale != nil {
		out = append(out, resource.Subresource{Name: "scale", Kind: scaleKind(), Verbs: verbs, Scale: v.scale(declared.Scale)})
	}
	return out
}

// scale returns the Scale subresource of the fields at a definition's paths. A
// missing field reads as zero.
func (v *version) scale(paths *apiextensionsv1.CustomResourceSubresourceScale) *resource.Scale {
	replicas := func(path string) func(resource.Object) int32 {
		return func(obj resource.Object) int32 {
			n, _, _ := unstructured.NestedInt64(v.in(obj).Object, steps(path)...)
			return int32(n)
		}
	}
	return &resource.Scale{
		Unchecked:      true,
		SpecReplicas:   replicas(paths.SpecReplicasPath),
		StatusReplicas: replicas(paths.StatusReplicasPath),
		Selector: func(obj resource.Object) string {
			if paths.LabelSelectorPath == nil {
				return ""
			}
			selector, _, _ := unstructured.NestedString(v.in(obj).Object, steps(*paths.LabelSelectorPath)...)
			return selector
		},
		SetReplicas: func(obj resource.Object, n int32) {
			u := obj.(*unstructured.Unstructured)
			u.Object = v.in(obj).Object
			_ = unstructured.SetNestedField(u.Object, int64(n), steps(paths.SpecReplicasPath)...)
		},
	}
}

// steps splits a path such as .spec.replicas.
func steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
