package networking

import (
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestValidateIngressPath(t *testing.T) {
	service := networkingv1.IngressBackend{
		Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}},
	}
	for _, test := range []struct {
		kind networkingv1.PathType
		path string
		want string
	}{
		{networkingv1.PathTypePrefix, "/a", ""},
		{networkingv1.PathTypePrefix, "a", `p.path: Invalid value: "a": must be an absolute path`},
		{networkingv1.PathTypeExact, "/a//b", `p.path: Invalid value: "/a//b": must not contain '//'`},
		{networkingv1.PathTypeExact, "/a/..", `p.path: Invalid value: "/a/..": cannot end with '/..'`},
		{networkingv1.PathTypeExact, "/a%2Fb", `p.path: Invalid value: "/a%2Fb": must not contain '%2F'`},
		{networkingv1.PathTypeImplementationSpecific, "", ""},
		{networkingv1.PathTypeImplementationSpecific, "/a//b", ""},
		{"Odd", "/", `p.pathType: Unsupported value: "Odd": supported values: "Exact", "ImplementationSpecific", "Prefix"`},
	} {
		t.Run(string(test.kind)+" "+test.path, func(t *testing.T) {
			errs := validateIngressPath(field.NewPath("p"), &networkingv1.HTTPIngressPath{PathType: &test.kind, Path: test.path, Backend: service})
			if got := message(errs); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestHostsCell(t *testing.T) {
	for _, test := range []struct {
		hosts []string
		want  string
	}{
		{nil, "*"},
		{[]string{""}, "*"},
		{[]string{"a", "b"}, "a,b"},
		{[]string{"a", "b", "c", "d", "e"}, "a,b,c + 2 more..."},
	} {
		var rules []networkingv1.IngressRule
		for _, host := range test.hosts {
			rules = append(rules, networkingv1.IngressRule{Host: host})
		}
		if got := hostsCell(rules); got != test.want {
			t.Errorf("%q: got %q, want %q", test.hosts, got, test.want)
		}
	}
}

func TestValidateIPBlock(t *testing.T) {
	for _, test := range []struct {
		name  string
		block networkingv1.IPBlock
		want  string
	}{
		{"a part is left out", networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}, ""},
		{"all is left out", networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.0.0.0/8"}},
			"b.except[0]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`"},
		{"something else is left out", networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"11.0.0.0/16"}},
			"b.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"},
		{"nothing", networkingv1.IPBlock{}, "b.cidr: Required value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := message(validateIPBlock(field.NewPath("b"), &test.block, addresses{strict: true})); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func message(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

func TestDefaultIngressClassIsMarked(t *testing.T) {
	for mark, want := range map[string]string{"true": "c (default)", "false": "c", "": "c"} {
		c := &networkingv1.IngressClass{}
		c.Name, c.Annotations = "c", map[string]string{networkingv1.AnnotationIsDefaultIngressClass: mark}
		if got := IngressClasses().Table.Row(c, time.Now())[0]; got != want {
			t.Errorf("%q: %v, want %s", mark, got, want)
		}
	}
}
