package core_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

type ruleCase struct {
	kind             *resource.Resource
	endpoint         string
	old, next, wants string
}

const claim = `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}`

func TestQuotaAndLimitRules(t *testing.T) {
	checkRules(t, map[string]ruleCase{
		"quota of unknown resources": {
			kind: core.ResourceQuotas(), next: `{spec: {hard: {gpus: 1, storage: 1}}}`,
			wants: `spec.hard[gpus]: Invalid value: "gpus": must be a standard resource for quota
spec.hard[gpus]: Invalid value: "gpus": must be a standard resource type or fully qualified
spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`,
		},
		"pod scope with other resources": {
			kind: core.ResourceQuotas(), next: `{spec: {hard: {services: 1, requests.storage: 1, pods: 1}, scopes: [Terminating]}}`,
			wants: `spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource
spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`,
		},
		"pod scope selector with other resources": {
			kind: core.ResourceQuotas(), next: `{spec: {hard: {services: 1}, scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: Exists}]}}}`,
			wants: `spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"Exists","Values":null}]}: unsupported scope applied to resource`,
		},
		"scope with values": {
			kind: core.ResourceQuotas(), next: `{spec: {hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: In, values: [x]}]}}}`,
			wants: `spec.scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exists' when scope is any of`,
		},
		"pod limit range with defaults": {
			kind: core.LimitRanges(), next: `{spec: {limits: [{type: Pod, max: {cpu: 1}, default: {cpu: 2}}]}}`,
			wants: "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
		},
	})
}

// TestWideQuotas checks that a quota with many scopes and resources does not get
// an error for each pair of them.
func TestWideQuotas(t *testing.T) {
	const wide = 20_000
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}, ScopeSelector: &corev1.ScopeSelector{}}}
	q.Name, q.Namespace = "q", "default"
	for i := range wide {
		q.Spec.Hard[corev1.ResourceName("hugepages-"+strconv.Itoa(i+1))] = apiresource.MustParse("1")
		q.Spec.Scopes = append(q.Spec.Scopes, corev1.ResourceQuotaScopeBestEffort)
		q.Spec.ScopeSelector.MatchExpressions = append(q.Spec.ScopeSelector.MatchExpressions,
			corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeBestEffort, Operator: corev1.ScopeSelectorOpExists})
	}
	errs := resourcetest.BeforeCreate(core.ResourceQuotas(), &resource.RequestContext{Now: noon, Namespace: "default"}, q)
	if len(errs) != 2*wide {
		t.Errorf("%d errors, want %d", len(errs), 2*wide)
	}
}

// TestWideAddresses checks that each address of a service is not compared with
// each address of the stored one.
func TestWideAddresses(t *testing.T) {
	s := core.Services().Hub().New().(*corev1.Service)
	s.Name, s.Namespace, s.UID, s.ResourceVersion = "s", "default", "u", "1"
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}
	for i := range 1 << 17 {
		ip := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, ip)
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, ip+"/32")
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	r := core.Services()
	r.Hub().Default(s)
	request := &resource.RequestContext{Now: noon, Namespace: "default"}
	if errs := resourcetest.BeforeUpdate(r, request, s.DeepCopy(), s); len(errs) > 0 {
		t.Error(errs[:1])
	}
	if errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), request, s.DeepCopy(), s); len(errs) > 0 {
		t.Error(errs[:1])
	}
}

func TestServiceRules(t *testing.T) {
	checkRules(t, map[string]ruleCase{
		"port of the kubelet": {
			kind: core.Services(), next: `{spec: {type: LoadBalancer, ports: [{port: 10250}]}}`,
		},
		"source ranges without load balancer": {
			kind:  core.Services(),
			next:  `{metadata: {annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: "10.0.0.0/8, x"}}, spec: {ports: [{port: 80}]}}`,
			wants: "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Forbidden: may only be used when `type` is 'LoadBalancer'\n" + `metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value: "x": must be a valid CIDR value`,
		},
		"changed load balancer class": {
			kind:  core.Services(),
			old:   `{spec: {type: LoadBalancer, loadBalancerClass: a, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}`,
			next:  `{spec: {type: LoadBalancer, loadBalancerClass: b, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}`,
			wants: `spec.loadBalancerClass: Invalid value: "b": may not change once set`,
		},
		"removed family": {
			kind:  core.Services(),
			old:   `{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, "fd00::1"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}}`,
			next:  `{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}}`,
			wants: `spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be set to 'SingleStack' when releasing the secondary clusterIP` + "\n" + `spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be set to 'SingleStack' when releasing the secondary ipFamily`,
		},
	})
}

func TestReplicationControllerRules(t *testing.T) {
	checkRules(t, map[string]ruleCase{
		"pods with a deadline": {
			kind: core.ReplicationControllers(),
			next: `{spec: {selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {
			  activeDeadlineSeconds: 9, containers: [{name: c, image: i}]}}}}`,
			wants: `spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is not Supported`,
		},
	})
}

func TestClaimUpdateRules(t *testing.T) {
	checkRules(t, map[string]ruleCase{
		"class moved from the annotation to the field": {
			kind: volume.PersistentVolumeClaims(),
			old:  `{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: fast}}, spec: ` + claim + `}}`,
			next: `{spec: ` + claim + `, storageClassName: fast}}`,
		},
		"changed class annotation": {
			kind:  volume.PersistentVolumeClaims(),
			old:   `{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: fast}}, spec: ` + claim + `}}`,
			next:  `{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: slow}}, spec: ` + claim + `}}`,
			wants: `metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: "slow": field is immutable`,
		},
		"removed attributes class": {
			kind:  volume.PersistentVolumeClaims(),
			old:   `{spec: ` + claim + `, volumeAttributesClassName: gold}, status: {phase: Bound, currentVolumeAttributesClassName: gold}}`,
			next:  `{spec: ` + claim + `}, status: {phase: Bound}}`,
			wants: `spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil`,
		},
		"invalid resize status": {
			kind: volume.PersistentVolumeClaims(), endpoint: "status",
			old: `{spec: ` + claim + `}}`,
			next: `{spec: ` + claim + `}, status: {capacity: {storage: -1}, allocatedResources: {cpu: 1, storage: 2Gi},
			  allocatedResourceStatuses: {storage: Growing}}}`,
			wants: `status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress", "ControllerResizeInfeasible"
status.allocatedResources: Unsupported value: "cpu": supported values: "storage"
status.capacity[storage]: Invalid value: -1: must be a valid resource quantity`,
		},
	})
}

// checkRules creates next or, if old is set, writes it over old, at the
// endpoint of a subresource if there is one. It compares the errors in
// alphabetical order with the beginnings in the lines of wants.
func checkRules(t *testing.T, cases map[string]ruleCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			request := &resource.RequestContext{Now: noon, Namespace: "default"}
			next := newObject(t, test.kind, test.next)
			var errs []string
			switch {
			case test.old == "":
				for _, err := range resourcetest.BeforeCreate(test.kind, request, next) {
					errs = append(errs, err.Error())
				}
			case test.endpoint == "":
				for _, err := range resourcetest.BeforeUpdate(test.kind, request, next, newObject(t, test.kind, test.old)) {
					errs = append(errs, err.Error())
				}
			default:
				for _, err := range resourcetest.BeforeSubresourceUpdate(test.kind, test.kind.Subresource(test.endpoint), request, next, newObject(t, test.kind, test.old)) {
					errs = append(errs, err.Error())
				}
			}
			slices.Sort(errs)
			var want []string
			if test.wants != "" {
				want = strings.Split(test.wants, "\n")
			}
			for i := range max(len(errs), len(want)) {
				if i >= len(errs) || i >= len(want) || !strings.HasPrefix(errs[i], want[i]) {
					t.Fatalf("want\n%s\ngot\n%s", test.wants, strings.Join(errs, "\n"))
				}
			}
		})
	}
}

func newObject(t *testing.T, r *resource.Resource, text string) resource.Object {
	t.Helper()
	obj := r.Hub().New()
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), obj); err != nil {
		t.Fatal(err)
	}
	obj.SetName("o")
	if r.Namespaced {
		obj.SetNamespace("default")
	}
	obj.SetUID("u")
	obj.SetResourceVersion("1")
	r.Hub().Default(obj)
	return obj
}
