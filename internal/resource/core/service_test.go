package core_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

func newService(t *testing.T, spec string) *corev1.Service {
	t.Helper()
	r := core.Services()
	s := r.Hub().New().(*corev1.Service)
	s.Name, s.Namespace, s.UID, s.ResourceVersion = "s", "default", "u", "1"
	if err := yaml.Unmarshal([]byte(spec), &s.Spec); err != nil {
		t.Fatal(err)
	}
	r.Hub().Default(s)
	return s
}

// TestServiceUpdate checks that a change of type clears what was allocated for
// the old type, and keeps what the client leaves out and the new type needs.
func TestServiceUpdate(t *testing.T) {
	for name, test := range map[string]struct{ old, next, want, problem string }{
		"node ports stay": {
			old:  "{type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80, nodePort: 30080}]}",
			next: "{type: LoadBalancer, ports: [{port: 80}]}",
			want: "10.0.0.1 30080",
		},
		"the node port of a name stays": {
			old:  "{type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 30081}]}",
			next: "{type: NodePort, ports: [{name: a, port: 8080}, {name: c, port: 80}]}",
			want: "10.0.0.1 30080 0",
		},
		"two protocols share a node port": {
			old:  "{type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{name: udp, port: 53, protocol: UDP, nodePort: 30053}, {name: tcp, port: 53, nodePort: 30053}]}",
			next: "{type: NodePort, ports: [{name: udp, port: 53, protocol: UDP}, {name: tcp, port: 53}]}",
			want: "10.0.0.1 30053 30053",
		},
		"another port has taken the node port": {
			old:  "{type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{name: a, port: 80, nodePort: 30080}]}",
			next: "{type: NodePort, ports: [{name: a, port: 80}, {name: b, port: 81, nodePort: 30080}]}",
			want: "10.0.0.1 0 30080",
		},
		"node ports go": {
			old:  "{type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80, nodePort: 30080}]}",
			next: "{type: ClusterIP, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80, nodePort: 30080}]}",
			want: "10.0.0.1 0",
		},
		"the address goes": {
			old:  "{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}",
			next: "{type: ExternalName, externalName: a.example, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}",
			want: " 0",
		},
		"the address cannot change": {
			old:     "{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}",
			next:    "{clusterIP: 10.0.0.2, clusterIPs: [10.0.0.2], ports: [{port: 80}]}",
			want:    "10.0.0.2 0",
			problem: `spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`,
		},
		"the port of health checks cannot change": {
			old:     "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 31000, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}",
			next:    "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 31001, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}",
			want:    "10.0.0.1 0",
			problem: `spec.healthCheckNodePort: Forbidden: field is immutable`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := newService(t, test.old), newService(t, test.next)
			errs := resourcetest.BeforeUpdate(core.Services(), &resource.RequestContext{Namespace: "default"}, next, old)
			got := next.Spec.ClusterIP
			for _, port := range next.Spec.Ports {
				got += " " + itoa(port.NodePort)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			var problem string
			if len(errs) > 0 {
				problem = errs[0].Error()
			}
			if diff := cmp.Diff(test.problem, problem); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestServiceUpdateByOldClient checks that a client that does not know of second
// addresses keeps them.
func TestServiceUpdateByOldClient(t *testing.T) {
	old := newService(t, "{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1'], ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv6], ports: [{port: 80}]}")
	next := newService(t, "{clusterIP: 10.0.0.1, ports: [{port: 81}]}")
	if errs := resourcetest.BeforeUpdate(core.Services(), &resource.RequestContext{Namespace: "default"}, next, old); len(errs) > 0 {
		t.Error(errs)
	}
	if diff := cmp.Diff(old.Spec.ClusterIPs, next.Spec.ClusterIPs); diff != "" {
		t.Error(diff)
	}
}

// TestStatusOfFormerLoadBalancer checks that a service loses the addresses of its
// load balancer with the type.
func TestStatusOfFormerLoadBalancer(t *testing.T) {
	old := newService(t, "{type: LoadBalancer, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}")
	old.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	for spec, want := range map[string]int{
		"{type: LoadBalancer, ports: [{port: 81}]}": 1,
		"{type: NodePort, ports: [{port: 80}]}":     0,
		"{ports: [{port: 80}]}":                     0,
	} {
		next := newService(t, spec)
		if errs := resourcetest.BeforeUpdate(core.Services(), &resource.RequestContext{Namespace: "default"}, next, old); len(errs) > 0 {
			t.Error(errs)
		}
		if got := len(next.Status.LoadBalancer.Ingress); got != want {
			t.Errorf("%s: %d addresses, want %d", spec, got, want)
		}
	}
}

// TestTopologyAnnotations checks that the two annotations that spread traffic
// over zones do not contradict each other.
func TestTopologyAnnotations(t *testing.T) {
	const old, mode = corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode
	for _, test := range []struct {
		annotations map[string]string
		problem     string
	}{
		{map[string]string{mode: "Auto"}, ""},
		{map[string]string{old: "Auto", mode: "Auto"}, ""},
		{map[string]string{old: "Disabled", mode: "Auto"},
			"metadata.annotations[" + mode + "]: Invalid value: \"Auto\": must match annotations[" + old + "] when both are specified"},
	} {
		s := newService(t, "{ports: [{port: 80}]}")
		s.Annotations = test.annotations
		r, request := core.Services(), &resource.RequestContext{Namespace: "default"}
		created, updated := s.DeepCopy(), s.DeepCopy()
		created.ResourceVersion = ""
		for operation, errs := range map[string]field.ErrorList{
			"create": resourcetest.BeforeCreate(r, request, created),
			"update": resourcetest.BeforeUpdate(r, request, updated, newService(t, "{ports: [{port: 80}]}")),
		} {
			got := ""
			if err := errs.ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != test.problem {
				t.Errorf("%s with %v: got %q, want %q", operation, test.annotations, got, test.problem)
			}
		}
	}
}

func itoa(n int32) string {
	encoded, _ := yaml.Marshal(n)
	return strings.TrimSpace(string(encoded))
}

func TestServiceFamilies(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	for name, test := range map[string]struct {
		spec    string
		cluster []corev1.IPFamily
		want    []corev1.IPFamily
		policy  corev1.IPFamilyPolicy
	}{
		"plain":                     {"{}", []corev1.IPFamily{v4}, []corev1.IPFamily{v4}, corev1.IPFamilyPolicySingleStack},
		"of the address":            {"{clusterIPs: ['fd00::1']}", []corev1.IPFamily{v4, v6}, []corev1.IPFamily{v6}, corev1.IPFamilyPolicySingleStack},
		"two if possible":           {"{ipFamilyPolicy: PreferDualStack}", []corev1.IPFamily{v4, v6}, []corev1.IPFamily{v4, v6}, corev1.IPFamilyPolicyPreferDualStack},
		"one if there is 1":         {"{ipFamilyPolicy: PreferDualStack}", []corev1.IPFamily{v4}, []corev1.IPFamily{v4}, corev1.IPFamilyPolicyPreferDualStack},
		"two addresses":             {"{clusterIPs: [10.0.0.1, 'fd00::1']}", []corev1.IPFamily{v4, v6}, []corev1.IPFamily{v4, v6}, corev1.IPFamilyPolicyRequireDualStack},
		"headless, selects nothing": {"{clusterIPs: [None]}", []corev1.IPFamily{v4}, []corev1.IPFamily{v4, v6}, corev1.IPFamilyPolicyRequireDualStack},
	} {
		s := newService(t, test.spec)
		core.AssignServiceFamilies(s, nil, test.cluster)
		if diff := cmp.Diff(test.want, s.Spec.IPFamilies); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if *s.Spec.IPFamilyPolicy != test.policy {
			t.Errorf("%s: policy %s, want %s", name, *s.Spec.IPFamilyPolicy, test.policy)
		}
	}
}
