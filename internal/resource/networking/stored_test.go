package networking

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

func fieldsOf(errs field.ErrorList) (fields []string) {
	for _, err := range errs {
		fields = append(fields, err.Field)
	}
	return fields
}

// TestStoredIngresses checks that updates may keep the names of secrets, and the
// paths of rules with a wildcard, that older versions did not check.
func TestStoredIngresses(t *testing.T) {
	ingress := func(secret, host, path string) *networkingv1.Ingress {
		i := &networkingv1.Ingress{}
		i.Name, i.Namespace, i.ResourceVersion = "i", "n", "1"
		i.Spec.TLS = []networkingv1.IngressTLS{{SecretName: secret}}
		i.Spec.Rules = []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: path, PathType: ptr.To(networkingv1.PathTypeExact), Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}},
				},
			}}},
		}}}
		return i
	}
	wrongSecret, wrongPath := []string{"spec.tls[0].secretName"}, []string{"spec.rules[0].http.paths[0].path"}
	for _, test := range []struct {
		name        string
		stored, now *networkingv1.Ingress
		want        []string
	}{
		{"nothing wrong", ingress("s", "*.example.com", "/"), ingress("s", "*.example.com", "/a"), nil},
		{"a secret", ingress("A B", "*.example.com", "/"), ingress("C D", "*.example.com", "/"), nil},
		{"a secret that had a name", ingress("a", "*.example.com", "/"), ingress("C D", "*.example.com", "/"), wrongSecret},
		{"no secret before", ingress("", "*.example.com", "/"), ingress("C D", "*.example.com", "/"), wrongSecret},
		{"a path", ingress("s", "*.example.com", "a"), ingress("s", "*.example.com", "b"), nil},
		{"a path that was right", ingress("s", "*.example.com", "/"), ingress("s", "*.example.com", "b"), wrongPath},
		{"a path of one host", ingress("s", "a.example.com", "a"), ingress("s", "a.example.com", "a"), wrongPath},
		{"a path that got one host", ingress("s", "*.example.com", "a"), ingress("s", "a.example.com", "a"), wrongPath},
	} {
		got := fieldsOf(resourcetest.BeforeUpdate(Ingresses(), &resource.RequestContext{}, test.now, test.stored))
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors at %q, want %q", test.name, got, test.want)
		}
	}
}

// TestStoredSelectors checks that a policy whose pod selector has a wrong value
// may have such values in updates.
func TestStoredSelectors(t *testing.T) {
	selecting := func(value string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{value}},
		}}
	}
	policy := func(pods, peers string) *networkingv1.NetworkPolicy {
		p := &networkingv1.NetworkPolicy{}
		p.Name, p.Namespace, p.ResourceVersion = "p", "n", "1"
		p.Spec.PodSelector = selecting(pods)
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: ptr.To(selecting(peers))}}}}
		NetworkPolicies().Hub().Default(p)
		return p
	}
	const pods = "spec.podSelector.matchExpressions[0].values[0]"
	const peers = "spec.egress[0].to[0].podSelector.matchExpressions[0].values[0]"
	for _, test := range []struct {
		name        string
		stored, now *networkingv1.NetworkPolicy
		want        []string
	}{
		{"nothing wrong", policy("a", "b"), policy("c", "d"), nil},
		{"wrong before", policy("a b", "b"), policy("b c", "c d"), nil},
		{"right before", policy("a", "b"), policy("b c", "c d"), []string{pods, peers}},
		{"peers wrong before", policy("a", "b c"), policy("a", "b c"), []string{peers}},
	} {
		got := fieldsOf(resourcetest.BeforeUpdate(NetworkPolicies(), &resource.RequestContext{}, test.now, test.stored))
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors at %q, want %q", test.name, got, test.want)
		}
	}
}

// TestLastPort checks that the error of a last port shows it.
func TestLastPort(t *testing.T) {
	ports := []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromInt32(80)), EndPort: ptr.To[int32](70)}}
	const want = "p[0].endPort: Invalid value: 70: must be greater than or equal to `port`"
	if got := message(validatePolicyPorts(field.NewPath("p"), ports)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestRanges checks the CIDRs of new ServiceCIDRs.
func TestRanges(t *testing.T) {
	for _, test := range []struct {
		cidrs []string
		want  []string
	}{
		{nil, []string{"p"}},
		{[]string{"10.0.0.0/16"}, nil},
		{[]string{"10.0.0.0/16", "2001:db8::/64"}, nil},
		{[]string{"10.0.0.0/16", "10.1.0.0/16"}, []string{"p"}},
		{[]string{"010.0.0.0/16", "10.1.0.0/16"}, []string{"p[0]", "p"}},
		{[]string{"a", "b"}, []string{"p[0]", "p[1]"}},
		{[]string{"10.0.0.0/16", "2001:db8::/64", "10.1.0.0/16"}, []string{"p"}},
	} {
		got := fieldsOf(validateCIDRs(field.NewPath("p"), &networkingv1.ServiceCIDRSpec{CIDRs: test.cidrs}))
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: errors at %q, want %q", test.cidrs, got, test.want)
		}
	}
}
