package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// knowsConfigMaps is a resolver of one kind.
type knowsConfigMaps struct{ admission.ObjectInterfaces }

func (knowsConfigMaps) ResourceOf(kind schema.GroupVersionKind) (string, bool, bool) {
	return "configmaps", true, kind == schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
}

// The writer of a policy or binding must be able to read its parameters.
func TestParamsAreReadable(t *testing.T) {
	type (
		policy  = admissionregistrationv1.ValidatingAdmissionPolicy
		binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	)
	maps := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	with := func(kind *admissionregistrationv1.ParamKind) *policy {
		return &policy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{ParamKind: kind}}
	}
	mutating := &admissionregistrationv1.MutatingAdmissionPolicy{Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{ParamKind: maps}}
	of := func(policy, name string) *binding {
		return &binding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy, ParamRef: &admissionregistrationv1.ParamRef{Name: name, Namespace: "default"}}}
	}
	for _, test := range []struct {
		name     string
		may      string // verb group/version/resource namespace/name
		obj, old runtime.Object
		masters  bool
		want     string // what the refusal says, at which field
	}{
		{name: "no parameters", obj: with(nil)},
		{name: "all of the kind", may: "get /v1/configmaps */*", obj: with(maps)},
		{name: "none of the kind", obj: with(maps), want: `spec.paramKind: Forbidden: user &{jane  [] map[]} must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)`},
		{name: "none of the kind, mutating", obj: mutating, want: `must have "get" permission`},
		{name: "kind as it was", obj: with(maps), old: with(maps)},
		{name: "changed kind", obj: with(maps), old: with(nil), want: `must have "get" permission`},
		{name: "masters", obj: with(maps), masters: true},
		{name: "one object", may: "get /v1/configmaps default/x", obj: of("p", "x")},
		{name: "another object", may: "get /v1/configmaps default/x", obj: of("p", "y"),
			want: `spec.paramRef: Forbidden: user &{jane  [] map[]} does not have "get" permission on the object referenced by paramRef`},
		{name: "objects by selector", may: "list /v1/configmaps default/", obj: of("p", "")},
		{name: "binding as it was", obj: of("p", "x"), old: of("p", "x")},
		{name: "binding to another policy", obj: of("p", "x"), old: of("q", "x"), want: `does not have "get" permission`},
		{name: "policy that does not exist", may: "get /v1/configmaps default/x", obj: of("q", "x"),
			want: `unable to get policy q to determine minimum required permissions and user &{jane  [] map[]} does not have "get" permission for all groups, versions and resources`},
		{name: "policy that does not exist, all readable", may: "get */*/* default/x", obj: of("q", "x")},
		{name: "kind that is not served", may: "get apps/v1/* */*", obj: with(&admissionregistrationv1.ParamKind{APIVersion: "apps/v1", Kind: "Nothing"})},
	} {
		t.Run(test.name, func(t *testing.T) {
			allow := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if fmt.Sprintf("%s %s/%s/%s %s/%s", a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetNamespace(), a.GetName()) == test.may {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			c := &Chain{config: &Config{Authorizer: allow, Objects: objectstest.NewMemory().Put(objects.ValidatingPolicies, with(maps))}}
			writer, op := &user.DefaultInfo{Name: "jane"}, admission.Create
			if test.masters {
				writer.Groups = []string{"system:masters"}
			}
			if test.old != nil {
				op = admission.Update
			}
			a := admission.NewAttributesRecord(test.obj, test.old, admissionregistrationv1.SchemeGroupVersion.WithKind("Policy"), "", "p",
				admissionregistrationv1.SchemeGroupVersion.WithResource("policies"), "", op, nil, false, writer)
			err := c.Admit(t.Context(), a, knowsConfigMaps{})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
