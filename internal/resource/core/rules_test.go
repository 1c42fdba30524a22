package core_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
)

// What is wrong with an object, or with what it becomes of old: every problem
// on a line, in alphabetical order.
func TestRules(t *testing.T) {
	const claim = `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}`
	for name, test := range map[string]struct {
		kind             *resource.Resource
		endpoint         string
		old, next, wants string
	}{
		"a quota of what nobody knows": {
			kind: core.ResourceQuotas(), next: `{spec: {hard: {gpus: 1, storage: 1}}}`,
			wants: `spec.hard[gpus]: Invalid value: "gpus": must be a standard resource for quota
spec.hard[gpus]: Invalid value: "gpus": must be a standard resource type or fully qualified
spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`,
		},
		"scopes that count only pods": {
			kind: core.ResourceQuotas(), next: `{spec: {hard: {services: 1, requests.storage: 1, pods: 1}, scopes: [Terminating]}}`,
			wants: `spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource
spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`,
		},
		"a selector that counts only pods": {
			kind: core.ResourceQuotas(), next: `{spec: {hard: {services: 1}, scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: Exists}]}}}`,
			wants: `spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"Exists","Values":null}]}: unsupported scope applied to resource`,
		},
		"defaults of pods": {
			kind: core.LimitRanges(), next: `{spec: {limits: [{type: Pod, max: {cpu: 1}, default: {cpu: 2}}]}}`,
			wants: "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
		},
		"the kubelet's port": {
			kind: core.Services(), next: `{spec: {type: LoadBalancer, ports: [{port: 10250}]}}`,
			wants: `spec.ports[0]: Invalid value: 10250: may not expose port 10250 externally since it is used by kubelet`,
		},
		"ranges of nobody": {
			kind:  core.Services(),
			next:  `{metadata: {annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: "10.0.0.0/8, x"}}, spec: {ports: [{port: 80}]}}`,
			wants: "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Forbidden: may only be used when `type` is 'LoadBalancer'\n" + `metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value: "x": must be a valid CIDR value`,
		},
		"another class of load balancers": {
			kind:  core.Services(),
			old:   `{spec: {type: LoadBalancer, loadBalancerClass: a, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}`,
			next:  `{spec: {type: LoadBalancer, loadBalancerClass: b, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80}]}}`,
			wants: `spec.loadBalancerClass: Invalid value: "b": may not change once set`,
		},
		"one family less": {
			kind:  core.Services(),
			old:   `{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, "fd00::1"], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}}`,
			next:  `{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}}`,
			wants: `spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be set to 'SingleStack' when releasing the secondary clusterIP` + "\n" + `spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be set to 'SingleStack' when releasing the secondary ipFamily`,
		},
		"a claim's class in the old annotation": {
			kind: core.PersistentVolumeClaims(),
			old:  `{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: fast}}, spec: ` + claim + `}}`,
			next: `{spec: ` + claim + `, storageClassName: fast}}`,
		},
		"a claim's class in the old annotation, changed": {
			kind:  core.PersistentVolumeClaims(),
			old:   `{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: fast}}, spec: ` + claim + `}}`,
			next:  `{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: slow}}, spec: ` + claim + `}}`,
			wants: `metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: "slow": field is immutable`,
		},
		"attributes taken away": {
			kind:  core.PersistentVolumeClaims(),
			old:   `{spec: ` + claim + `, volumeAttributesClassName: gold}, status: {phase: Bound, currentVolumeAttributesClassName: gold}}`,
			next:  `{spec: ` + claim + `}, status: {phase: Bound}}`,
			wants: `spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil`,
		},
		"a claim that grows": {
			kind: core.PersistentVolumeClaims(), endpoint: "status",
			old: `{spec: ` + claim + `}}`,
			next: `{spec: ` + claim + `}, status: {capacity: {storage: -1}, allocatedResources: {cpu: 1, storage: 2Gi},
			  allocatedResourceStatuses: {storage: Growing}}}`,
			wants: `status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress", "ControllerResizeInfeasible"
status.allocatedResources: Unsupported value: "cpu": supported values: "storage"
status.capacity[storage]: Invalid value: -1: must be a valid resource quantity`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := &resource.Request{Now: noon, Namespace: "default"}
			next := newObject(t, test.kind, test.next)
			var errs []string
			switch {
			case test.old == "":
				for _, err := range resource.BeforeCreate(test.kind, request, next) {
					errs = append(errs, err.Error())
				}
			case test.endpoint == "":
				for _, err := range resource.BeforeUpdate(test.kind, request, next, newObject(t, test.kind, test.old)) {
					errs = append(errs, err.Error())
				}
			default:
				for _, err := range resource.BeforeSubresourceUpdate(test.kind, test.kind.Subresource(test.endpoint), request, next, newObject(t, test.kind, test.old)) {
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
