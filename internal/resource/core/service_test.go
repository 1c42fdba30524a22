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

// familiesCase is a service, with what it replaces, in a cluster with families, and what
// is assigned to it.
type familiesCase struct {
	old, spec, cluster string
	families, policy   string
	problem            string // an error instead
}

func (c *familiesCase) check(t *testing.T, name string) {
	t.Helper()
	s := newService(t, c.spec)
	var old *corev1.Service
	if c.old != "" {
		old = newService(t, c.old)
	}
	before := old.DeepCopy()
	var cluster []corev1.IPFamily
	for f := range strings.FieldsSeq(c.cluster) {
		cluster = append(cluster, corev1.IPFamily(f))
	}
	problem := ""
	for _, err := range core.AssignServiceFamilies(s, old, cluster) {
		problem = strings.TrimPrefix(problem+"\n"+err.Error(), "\n")
	}
	if problem != c.problem {
		t.Errorf("%s: error %q, want %q", name, problem, c.problem)
	}
	if diff := cmp.Diff(before, old); diff != "" {
		t.Errorf("%s: the old service has changed: %s", name, diff)
	}
	if problem != "" {
		return
	}
	var families []string
	for _, f := range s.Spec.IPFamilies {
		families = append(families, string(f))
	}
	if got := strings.Join(families, " "); got != c.families {
		t.Errorf("%s: families %q, want %q", name, got, c.families)
	}
	if policy := s.Spec.IPFamilyPolicy; policy == nil && c.policy != "" || policy != nil && string(*policy) != c.policy {
		t.Errorf("%s: policy %v, want %q", name, policy, c.policy)
	}
}

func TestServiceFamilies(t *testing.T) {
	const v4, v6, both = "IPv4", "IPv6", "IPv4 IPv6"
	const single, prefer, require = "SingleStack", "PreferDualStack", "RequireDualStack"
	const selects = ", selector: {app: web}"
	const twoIPs = "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"
	const twoFamilies = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
	const given6 = "clusterIP: 'fd00::1', clusterIPs: ['fd00::1']"
	const given = "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1']"
	const headless = "clusterIP: None, clusterIPs: [None]"
	for name, test := range map[string]familiesCase{
		"plain":                      {spec: "{}", cluster: v4, families: v4, policy: single},
		"plain, in two":              {spec: "{}", cluster: "IPv6 IPv4", families: v6, policy: single},
		"of the address":             {spec: "{" + given6 + "}", cluster: both, families: v6, policy: single},
		"of an address nobody has":   {spec: "{" + given6 + "}", cluster: v4, problem: "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster"},
		"a family nobody has":        {spec: "{ipFamilies: [IPv6]}", cluster: v4, problem: "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"},
		"two if possible":            {spec: "{ipFamilyPolicy: PreferDualStack}", cluster: both, families: both, policy: prefer},
		"two if possible, in order":  {spec: "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6]}", cluster: both, families: "IPv6 IPv4", policy: prefer},
		"one if there is 1":          {spec: "{ipFamilyPolicy: PreferDualStack}", cluster: v4, families: v4, policy: prefer},
		"two, and there is 1":        {spec: "{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6]}", cluster: v4, problem: "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services\nspec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"},
		"two addresses":              {spec: "{ipFamilyPolicy: PreferDualStack, " + given + "}", cluster: both, families: both, policy: prefer},
		"two addresses, one family":  {spec: "{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4], " + given + "}", cluster: both, families: both, policy: require},
		"two addresses, no policy":   {spec: "{" + given + "}", cluster: both, problem: "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": " + twoIPs},
		"two families, no policy":    {spec: "{ipFamilies: [IPv4, IPv6]}", cluster: both, problem: "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": " + twoFamilies},
		"two of all, and one wanted": {spec: "{ipFamilyPolicy: SingleStack, ipFamilies: [IPv4, IPv6], " + given + "}", cluster: both, problem: "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": " + twoIPs + "\nspec.ipFamilyPolicy: Invalid value: \"SingleStack\": " + twoFamilies},
		"an address of another":      {spec: "{ipFamilies: [IPv4], " + given6 + "}", cluster: both, problem: "spec.clusterIPs[0]: Invalid value: \"fd00::1\": expected an IPv4 value as indicated by `ipFamilies[0]`"},
		"headless":                   {spec: "{" + headless + selects + "}", cluster: both, families: v4, policy: single},
		"headless, two if possible":  {spec: "{ipFamilyPolicy: PreferDualStack, " + headless + selects + "}", cluster: v4, families: v4, policy: prefer},
		"headless, selects nothing":  {spec: "{" + headless + "}", cluster: v4, families: both, policy: require},
		"the same, and a family":     {spec: "{ipFamilies: [IPv6], " + headless + "}", cluster: v4, families: "IPv6 IPv4", policy: require},
		"the same, one wanted":       {spec: "{ipFamilyPolicy: SingleStack, ipFamilies: [IPv6], " + headless + "}", cluster: v4, families: v6, policy: single},
		"the same, two and a policy": {spec: "{ipFamilyPolicy: SingleStack, ipFamilies: [IPv6, IPv4], " + headless + "}", cluster: v4, problem: "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": " + twoFamilies},
		"external":                   {spec: "{type: ExternalName, externalName: example.com}", cluster: v4},
	} {
		test.check(t, name)
	}
}

// An update keeps what it does not speak of.
func TestServiceFamiliesOfUpdates(t *testing.T) {
	const v4, both = "IPv4", "IPv4 IPv6"
	const single, prefer, require = "SingleStack", "PreferDualStack", "RequireDualStack"
	const selects = ", selector: {app: web}"
	const given4, given6 = "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1]", "clusterIP: 'fd00::1', clusterIPs: ['fd00::1']"
	const given = "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1']"
	for name, test := range map[string]familiesCase{
		"no policy any more": {
			old: "{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv6], " + given + "}", spec: "{" + given + "}", cluster: both, families: both, policy: require,
		},
		"single-stack": {
			old:  "{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv6], " + given + "}",
			spec: "{ipFamilyPolicy: SingleStack, ipFamilies: [IPv4, IPv6], " + given + "}", cluster: both, families: v4, policy: single,
		},
		"one less": {
			old:     "{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv6], " + given + "}",
			spec:    "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4], " + given4 + "}",
			cluster: both, problem: "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary cluster IP\nspec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary IP family",
		},
		"one more": {
			old:  "{ipFamilyPolicy: SingleStack, ipFamilies: [IPv6], " + given6 + "}",
			spec: "{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6], " + given6 + "}", cluster: both, families: "IPv6 IPv4", policy: require,
		},
		"no more as the cluster has": {
			old:  "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4], " + given4 + "}",
			spec: "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4], " + given4 + selects + "}", cluster: both, families: v4, policy: prefer,
		},
		"no less as the cluster has": {
			old:  "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv6], " + given + "}",
			spec: "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv6], " + given + selects + "}", cluster: v4, families: both, policy: prefer,
		},
		"of another type": {
			old:  "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4], " + given4 + "}",
			spec: "{type: NodePort, ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4], " + given4 + "}", cluster: both, families: both, policy: prefer,
		},
	} {
		test.check(t, name)
	}
}
