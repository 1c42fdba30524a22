package ingress

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Of an Ingress with very many rules, paths and certificates, those are kept that can have an
// effect, and one more of each. The object of the informer stays as it is.
func TestLargeIngressesAreReduced(t *testing.T) {
	const many = 3 * max(maxHostsOfNamespace, maxPathsOfNamespace)
	large := newIngress("n", "large", 0, newRule("a.example"), newRule("b.example"))
	for n := range many {
		http := large.Spec.Rules[n%2].HTTP
		http.Paths = append(http.Paths, newRule("", fmt.Sprintf("/%d=web:80", n)).HTTP.Paths...)
	}
	large.Spec.Rules = append(large.Spec.Rules, make([]networkingv1.IngressRule, many)...)
	large.Spec.TLS = make([]networkingv1.IngressTLS, many)
	large.Spec.TLS[0].Hosts = make([]string, many)
	reduced, err := reduce(large)
	if err != nil {
		t.Fatal(err)
	}
	count := func(s *networkingv1.IngressSpec) string {
		return fmt.Sprint(len(s.Rules), " rules, ", len(s.Rules[0].HTTP.Paths)+len(s.Rules[1].HTTP.Paths), " paths, ", len(s.TLS), " certificates of ", len(s.TLS[0].Hosts), " hosts")
	}
	for what, test := range map[string]struct {
		got                 *networkingv1.IngressSpec
		rules, paths, hosts int
	}{
		"the reduced Ingress": {&reduced.(*networkingv1.Ingress).Spec, maxHostsOfNamespace + 1, maxPathsOfNamespace + 1, maxHostsOfNamespace + 1},
		"the original":        {&large.Spec, many + 2, many, many},
	} {
		want := fmt.Sprint(test.rules, " rules, ", test.paths, " paths, ", test.hosts, " certificates of ", test.hosts, " hosts")
		if got := count(test.got); got != want {
			t.Errorf("%s has %s, want %s", what, got, want)
		}
	}
}

// Of the metadata of an object of the Gateway API, what nobody uses is not kept: annotations
// have room for 256 KiB.
func TestReducedGateways(t *testing.T) {
	metadata := map[string]any{"name": "gw", "namespace": "web", "uid": "u", "resourceVersion": "1", "generation": int64(1), "creationTimestamp": "2026-01-01T00:00:00Z"}
	want := slices.Sorted(maps.Keys(metadata))
	for _, name := range []string{"labels", "annotations"} {
		metadata[name] = map[string]any{"a": "b"}
	}
	metadata["finalizers"] = []any{"example.com/a"}
	metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"}}
	metadata["managedFields"] = []any{map[string]any{"manager": "m"}}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": metadata}}
	if _, err := reduce(o); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(metadata)); !slices.Equal(got, want) {
		t.Errorf("the fields %v are kept, want %v", got, want)
	}
}
