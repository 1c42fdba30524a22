package admissionregistration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/admissionregistration"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestTooManyAuditAnnotations checks that the error about too many annotations
// shows them with upstream's internal field names.
func TestTooManyAuditAnnotations(t *testing.T) {
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	policy.Name = "p"
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
		},
	}}}
	for i := range 21 {
		policy.Spec.AuditAnnotations = append(policy.Spec.AuditAnnotations, admissionv1.AuditAnnotation{Key: fmt.Sprint("k", i), ValueExpression: "'x'"})
	}
	r := admissionregistration.ValidatingAdmissionPolicies()
	r.Hub().Default(policy)
	errs := resourcetest.BeforeCreate(r, &resource.RequestContext{Now: time.Unix(0, 0)}, policy)
	const want = `spec.auditAnnotations: Invalid value: [{"Key":"k0","ValueExpression":"'x'"},`
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) || !strings.HasSuffix(errs[0].Error(), "must not have more than 20 auditAnnotations") {
		t.Errorf("%v, want %s", errs, want)
	}
}

// TestReservedNames checks that the API does not take the names of objects in the
// files of an API server, which the server itself reads.
func TestReservedNames(t *testing.T) {
	for name, kind := range map[string]func() (*resource.Resource, resource.Object){
		"policy": func() (*resource.Resource, resource.Object) {
			return admissionregistration.ValidatingAdmissionPolicies(), &admissionv1.ValidatingAdmissionPolicy{}
		},
		"binding": func() (*resource.Resource, resource.Object) {
			return admissionregistration.MutatingAdmissionPolicyBindings(), &admissionv1.MutatingAdmissionPolicyBinding{}
		},
		"webhook": func() (*resource.Resource, resource.Object) {
			return admissionregistration.MutatingWebhookConfigurations(), &admissionv1.MutatingWebhookConfiguration{}
		},
	} {
		refused := func(who user.Info, gates ...string) bool {
			set, err := feature.Parse(gates)
			if err != nil {
				t.Fatal(err)
			}
			r, obj := kind()
			obj.SetName("p.static.k8s.io")
			errs := resourcetest.BeforeCreate(r, &resource.RequestContext{User: who, Features: set}, obj)
			return strings.Contains(fmt.Sprint(errs), `metadata.name: Invalid value: "p.static.k8s.io": names ending with ".static.k8s.io" are reserved`)
		}
		alice := &user.DefaultInfo{Name: "alice"}
		if !refused(alice) || refused(nil) || refused(alice, "ManifestBasedAdmissionControlConfig=false") {
			t.Errorf("%s: refused %t, from the server %t, without the gate %t", name, refused(alice), refused(nil), refused(alice, "ManifestBasedAdmissionControlConfig=false"))
		}
	}
}

// TestUpdateOfAReservedName checks that an object that has such a name already
// can change, with a warning.
func TestUpdateOfAReservedName(t *testing.T) {
	r := admissionregistration.ValidatingAdmissionPolicyBindings()
	old := &admissionv1.ValidatingAdmissionPolicyBinding{Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "p", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	old.Name, old.ResourceVersion = "p.static.k8s.io", "1"
	changed := old.DeepCopy()
	changed.Spec.ValidationActions[0] = admissionv1.Warn
	request := &resource.RequestContext{User: &user.DefaultInfo{Name: "alice"}}
	if errs := resourcetest.BeforeUpdate(r, request, changed, old); len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
	warnings := r.Strategy.Warnings(request, changed, old)
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], `metadata.name: names ending with ".static.k8s.io" are reserved`) {
		t.Errorf("warnings %q", warnings)
	}
	if got := r.Strategy.Warnings(request, &admissionv1.ValidatingAdmissionPolicyBinding{}, nil); len(got) > 0 {
		t.Errorf("warnings of another name: %q", got)
	}
}
