package all_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

// cellsCase is an object of a resource, without its name x and its age of an
// hour, and the cells of its row, joined by " | ".
type cellsCase struct{ of, object, want string }

// workloadCells are of the kinds that make pods.
func workloadCells() []cellsCase {
	const template = `template: {spec: {containers: [{name: a, image: one}, {name: b, image: two}]}}`
	return []cellsCase{
		{"deployments.apps", `{spec: {replicas: 3, selector: {matchLabels: {app: web}}, ` + template + `}, status: {readyReplicas: 2, updatedReplicas: 1, availableReplicas: 2}}`,
			"x | 2/3 | 1 | 2 | 60m | a,b | one,two | app=web"},
		{"replicasets.apps", `{spec: {replicas: 3, selector: {matchExpressions: [{key: app, operator: Exists}]}, ` + template + `}, status: {replicas: 2, readyReplicas: 1}}`,
			"x | 3 | 2 | 1 | 60m | a,b | one,two | app"},
		{"replicationcontrollers", `{spec: {replicas: 2, selector: {app: web}}, status: {replicas: 1}}`, "x | 2 | 1 | 0 | 60m |  |  | app=web"},
		{"statefulsets.apps", `{spec: {replicas: 2, ` + template + `}, status: {readyReplicas: 1}}`, "x | 1/2 | 60m | a,b | one,two"},
		{"daemonsets.apps", `{spec: {template: {spec: {nodeSelector: {disk: ssd}}}}, status: {desiredNumberScheduled: 5, currentNumberScheduled: 4, numberReady: 3, updatedNumberScheduled: 2, numberAvailable: 1}}`,
			"x | 5 | 4 | 3 | 2 | 1 | disk=ssd | 60m |  |  | <none>"},
		{"controllerrevisions.apps", `{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, controller: true}]}, revision: 7}`,
			"x | daemonset.apps/agent | 7 | 60m"},
		{"controllerrevisions.apps", `{revision: 1}`, "x | <none> | 1 | 60m"},
		{"jobs.batch", `{spec: {completions: 4}, status: {succeeded: 2, startTime: "2026-01-01T11:50:00Z"}}`, "x | Running | 2/4 | 10m | 60m |  |  | <none>"},
		{"jobs.batch", `{spec: {parallelism: 3}, status: {succeeded: 1}}`, "x | Running | 1/1 of 3 |  | 60m |  |  | <none>"},
		{"jobs.batch", `{spec: {parallelism: 1}, status: {startTime: "2026-01-01T11:00:00Z", completionTime: "2026-01-01T11:00:30Z", conditions: [{type: Complete, status: "True"}]}}`,
			"x | Complete | 0/1 | 30s | 60m |  |  | <none>"},
		{"jobs.batch", `{status: {conditions: [{type: Complete, status: "False"}, {type: Suspended, status: "True"}]}}`, "x | Suspended | 0/1 |  | 60m |  |  | <none>"},
		{"jobs.batch", `{status: {conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: FailureTarget, status: "True"}]}}`, "x | FailureTarget | 0/1 |  | 60m |  |  | <none>"},
		{"cronjobs.batch", `{spec: {schedule: "0 * * * *", timeZone: Etc/UTC, suspend: true}, status: {active: [{name: j}], lastScheduleTime: "2026-01-01T11:30:00Z"}}`,
			"x | 0 * * * * | Etc/UTC | True | 1 | 30m | 60m |  |  | <none>"},
		{"cronjobs.batch", `{spec: {schedule: "@daily"}}`, "x | @daily | <none> | <unset> | 0 | <none> | 60m |  |  | <none>"},
		{"poddisruptionbudgets.policy", `{spec: {minAvailable: 22}, status: {disruptionsAllowed: 5}}`, "x | 22 | N/A | 5 | 60m"},
		{"poddisruptionbudgets.policy", `{spec: {maxUnavailable: 30%}}`, "x | N/A | 30% | 0 | 60m"},
	}
}

// autoscalerCells are of HorizontalPodAutoscalers.
func autoscalerCells() []cellsCase {
	const (
		of       = "horizontalpodautoscalers.autoscaling"
		cpu      = `{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}`
		external = `{type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 50}}}`
		object   = `{type: Object, object: {describedObject: {kind: Service, name: s}, metric: {name: hits}, target: {type: Value, value: 100m}}}`
	)
	spec := func(metrics ...string) string {
		return `spec: {scaleTargetRef: {kind: Deployment, name: web}, minReplicas: 2, maxReplicas: 10, metrics: [` + strings.Join(metrics, ", ") + `]}`
	}
	return []cellsCase{
		{of, `{spec: {scaleTargetRef: {kind: ReplicationController, name: rc}, maxReplicas: 10}, status: {currentReplicas: 4}}`,
			"x | ReplicationController/rc | <none> | <unset> | 10 | 4 | 60m"},
		{of, `{` + spec(cpu) + `, status: {currentReplicas: 4, currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 50, averageValue: 40m}}}]}}`,
			"x | Deployment/web | cpu: 50%/80% | 2 | 10 | 4 | 60m"},
		{of, `{` + spec(cpu) + `}`, "x | Deployment/web | cpu: <unknown>/80% | 2 | 10 | 0 | 60m"},
		{of, `{` + spec(external, object) + `, status: {currentMetrics: [{type: External, external: {metric: {name: queue}, current: {averageValue: 40}}}, {type: Object, object: {metric: {name: hits}, current: {value: 50m}}}]}}`,
			"x | Deployment/web | 40/50 (avg), 50m/100m | 2 | 10 | 0 | 60m"},
		{of, `{` + spec(cpu, object, external) + `}`, "x | Deployment/web | cpu: <unknown>/80%, <unknown>/100m + 1 more... | 2 | 10 | 0 | 60m"},
	}
}

// clusterCells are of nodes, storage, policies and access.
func clusterCells() []cellsCase {
	return []cellsCase{
		{"nodes", `{metadata: {labels: {node-role.kubernetes.io/worker: "", kubernetes.io/role: infra}}, spec: {unschedulable: true}, status: {conditions: [{type: Ready, status: "True"}], addresses: [{type: ExternalIP, address: 192.0.2.1}, {type: InternalIP, address: 10.0.0.1}], nodeInfo: {kubeletVersion: v1, kernelVersion: "6"}}}`,
			"x | Ready,SchedulingDisabled | infra,worker | 60m | v1 | 10.0.0.1 | 192.0.2.1 | <unknown> | 6 | <unknown>"},
		{"nodes", `{status: {conditions: [{type: Ready, status: Unknown}]}}`, "x | NotReady | <none> | 60m |  | <none> | <none> | <unknown> | <unknown> | <unknown>"},
		{"nodes", `{}`, "x | Unknown | <none> | 60m |  | <none> | <none> | <unknown> | <unknown> | <unknown>"},
		{"namespaces", `{status: {phase: Terminating}}`, "x | Terminating | 60m"},
		{"persistentvolumes", `{spec: {capacity: {storage: 4Gi}, accessModes: [ReadOnlyMany, ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, claimRef: {namespace: web, name: data}, storageClassName: fast, volumeMode: Block}, status: {phase: Released, reason: r}}`,
			"x | 4Gi | RWO,ROX | Retain | Released | web/data | fast | <unset> | r | 60m | Block"},
		{"persistentvolumes", `{metadata: {deletionTimestamp: "2026-01-01T11:59:00Z"}, status: {phase: Bound}}`, "x | 0 |  |  | Terminating |  |  | <unset> |  | 60m | <unset>"},
		{"persistentvolumeclaims", `{spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}, status: {phase: Pending}}`,
			"x | Pending |  |  |  | fast | <unset> | 60m | <unset>"},
		{"persistentvolumeclaims", `{spec: {volumeName: pv, volumeAttributesClassName: gold, volumeMode: Filesystem}, status: {phase: Bound, accessModes: [ReadWriteOncePod], capacity: {storage: 4Gi}}}`,
			"x | Bound | pv | 4Gi | RWOP |  | gold | 60m | Filesystem"},
		{"storageclasses.storage.k8s.io", `{provisioner: p}`, "x | p | Delete | Immediate | false | 60m"},
		{"csidrivers.storage.k8s.io", `{spec: {}}`, "x | true | false | false | <unset> | false | <none> | 60m"},
		{"csidrivers.storage.k8s.io", `{spec: {attachRequired: false, tokenRequests: [{audience: a}, {audience: b}], volumeLifecycleModes: [Persistent, Ephemeral]}}`,
			"x | false | false | false | a,b | false | Persistent,Ephemeral | 60m"},
		{"volumeattachments.storage.k8s.io", `{spec: {attacher: a, nodeName: n1, source: {persistentVolumeName: pv}}, status: {attached: true}}`, "x | a | pv | n1 | true | 60m"},
		{"resourcequotas", `{status: {hard: {limits.cpu: "2", requests.cpu: "1", pods: "10"}, used: {limits.cpu: "1", requests.cpu: 500m}}}`,
			"x | pods: 0/10, requests.cpu: 500m/1 | limits.cpu: 1/2 | 60m"},
		{"rolebindings.rbac.authorization.k8s.io", `{roleRef: {kind: ClusterRole, name: edit}, subjects: [{kind: User, name: u}, {kind: User, name: v}, {kind: Group, name: g}, {kind: ServiceAccount, namespace: web, name: robot}]}`,
			"x | ClusterRole/edit | 60m | u, v | g | web/robot"},
		{"certificatesigningrequests.certificates.k8s.io", `{spec: {username: jane, signerName: example.com/s, expirationSeconds: 86400}, status: {certificate: eA==, conditions: [{type: Approved}]}}`,
			"x | 60m | example.com/s | jane | 24h | Approved,Issued"},
		{"certificatesigningrequests.certificates.k8s.io", `{status: {conditions: [{type: Approved}, {type: Denied}, {type: Failed}]}}`, "x | 60m | <none> |  | <none> | Denied,Failed"},
		{"priorityclasses.scheduling.k8s.io", `{value: 100, globalDefault: true, preemptionPolicy: Never}`, "x | 100 | true | 60m | Never"},
		{"validatingadmissionpolicies.admissionregistration.k8s.io", `{spec: {paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "true"}]}}`, "x | 1 | v1/ConfigMap | 60m"},
		{"validatingadmissionpolicybindings.admissionregistration.k8s.io", `{spec: {policyName: p, paramRef: {namespace: web, name: c}}}`, "x | p | web/c | 60m"},
		{"flowschemas.flowcontrol.apiserver.k8s.io", `{spec: {priorityLevelConfiguration: {name: low}, matchingPrecedence: 900, distinguisherMethod: {type: ByUser}}, status: {conditions: [{type: Dangling, status: "False"}]}}`,
			"x | low | 900 | ByUser | 60m | False"},
		{"flowschemas.flowcontrol.apiserver.k8s.io", `{}`, "x |  | 0 | <none> | 60m | ?"},
		{"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", `{spec: {type: Limited, limited: {nominalConcurrencyShares: 47, limitResponse: {type: Queue, queuing: {queues: 64, handSize: 6, queueLengthLimit: 50}}}}}`,
			"x | Limited | 47 | 64 | 6 | 50 | 60m"},
		{"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", `{spec: {type: Exempt}}`, "x | Exempt | <none> | <none> | <none> | <none> | 60m"},
		{"leases.coordination.k8s.io", `{spec: {holderIdentity: h}}`, "x | h | 60m"},
		{"resourceclaims.resource.k8s.io", `{status: {allocation: {}, reservedFor: [{resource: pods, name: p}]}}`, "x | allocated,reserved | 60m"},
		{"resourceclaims.resource.k8s.io", `{}`, "x | pending | 60m"},
		{"resourceclaims.resource.k8s.io", `{metadata: {deletionTimestamp: "2026-01-01T11:59:00Z"}, status: {allocation: {}}}`, "x | deleted,allocated | 60m"},
	}
}

// otherCells are of the network, events and data.
func otherCells() []cellsCase {
	return []cellsCase{
		{"endpointslices.discovery.k8s.io", `{addressType: IPv4, ports: [{port: 80}, {name: http}, {}], endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2, 10.0.0.3, 10.0.0.4]}]}`,
			"x | IPv4 | 80,http,* | 10.0.0.1,10.0.0.2,10.0.0.3 + 1 more... | 60m"},
		{"endpointslices.discovery.k8s.io", `{addressType: FQDN}`, "x | FQDN | <unset> | <unset> | 60m"},
		{"ingresses.networking.k8s.io", `{spec: {ingressClassName: web, tls: [{}], rules: [{host: a}, {host: b}, {host: c}, {host: d}]}, status: {loadBalancer: {ingress: [{hostname: lb.example}, {ip: 192.0.2.1}]}}}`,
			"x | web | a,b,c + 1 more... | 192.0.2.1,lb.example | 80, 443 | 60m"},
		{"ingresses.networking.k8s.io", `{}`, "x | <none> | * |  | 80 | 60m"},
		{"ingressclasses.networking.k8s.io", `{spec: {controller: example.com/c, parameters: {apiGroup: example.com, kind: Params, name: p}}}`, "x | example.com/c | Params.example.com/p | 60m"},
		{"networkpolicies.networking.k8s.io", `{spec: {podSelector: {matchLabels: {app: web}}}}`, "x | app=web | 60m"},
		{"networkpolicies.networking.k8s.io", `{}`, "x | <none> | 60m"},
		{"servicecidrs.networking.k8s.io", `{spec: {cidrs: [10.0.0.0/24, "2001:db8::/64"]}}`, "x | 10.0.0.0/24,2001:db8::/64 | 60m"},
		{"ipaddresses.networking.k8s.io", `{spec: {parentRef: {resource: services, namespace: web, name: s}}}`, "x | services/web/s"},
		{"events", `{type: Warning, reason: BackOff, message: " again ", count: 3, firstTimestamp: "2026-01-01T11:50:00Z", lastTimestamp: "2026-01-01T11:55:00Z", source: {component: kubelet, host: n1}, involvedObject: {kind: Pod, name: p, fieldPath: spec.c}}`,
			"5m | Warning | BackOff | pod/p | spec.c | kubelet, n1 | again | 10m | 3 | x"},
		{"events", `{type: Normal, reason: R, message: m, eventTime: "2026-01-01T11:50:00.000000Z", series: {count: 7, lastObservedTime: "2026-01-01T11:55:00.000000Z"}, reportingComponent: c, involvedObject: {kind: Node}}`,
			"5m | Normal | R | node |  | c | m | 10m | 7 | x"},
		{"events", `{type: Normal, reason: R, message: m, eventTime: "2026-01-01T11:50:00.000000Z"}`, "10m | Normal | R |  |  |  | m | 10m | 1 | x"},
		{"secrets", `{type: Opaque, data: {a: eA==, b: eA==}}`, "x | Opaque | 2 | 60m"},
		{"configmaps", `{data: {a: x}, binaryData: {b: eA==}}`, "x | 2 | 60m"},
		{"podtemplates", `{template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: one}]}}}`, "x | a | one | app=web"},
		{"componentstatuses", `{conditions: [{type: Healthy, status: "True", message: ok}]}`, "x | Healthy | ok | "},
		{"componentstatuses", `{}`, "x | Unknown |  | "},
	}
}

// TestCells checks rows of all kinds against upstream's cases.
func TestCells(t *testing.T) {
	noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	kinds := map[string]*resource.Resource{}
	for _, r := range all.All() {
		kinds[r.GroupResource().String()] = r
	}
	cases := append(append(append(workloadCells(), autoscalerCells()...), clusterCells()...), otherCells()...)
	for _, test := range cases {
		r := kinds[test.of]
		if r == nil {
			t.Errorf("%s is unknown", test.of)
			continue
		}
		obj := r.Hub().New()
		if err := yaml.Unmarshal([]byte(test.object), obj); err != nil {
			t.Errorf("%s: %s: %v", test.of, test.object, err)
			continue
		}
		obj.SetName("x")
		obj.SetCreationTimestamp(metav1.NewTime(noon.Add(-time.Hour)))
		var cells []string
		for _, cell := range r.Table.Row(obj, noon) {
			cells = append(cells, fmt.Sprint(cell))
		}
		if got := strings.Join(cells, " | "); got != test.want {
			t.Errorf("%s: %s\nis %q\nnot %q", test.of, test.object, got, test.want)
		}
	}
}
