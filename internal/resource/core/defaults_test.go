package core_test

import (
	"errors"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/core/volume"
)

func TestDefaults(t *testing.T) {
	const template = `template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Always, dnsPolicy: ClusterFirst,
  schedulerName: default-scheduler, terminationGracePeriodSeconds: 30, securityContext: {}}}`
	const sticky = `{spec: {type: ClusterIP, internalTrafficPolicy: Cluster, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}}}`
	for name, c := range map[string]struct {
		kind         *resource.Resource
		before, want string
	}{
		"labels of the template": {
			core.ReplicationControllers(), `{spec: {template: {metadata: {labels: {a: b}}}}}`,
			`{metadata: {labels: {a: b}}, spec: {replicas: 1, selector: {a: b}, ` + template + `}}`,
		},
		"a controller's own labels": {
			core.ReplicationControllers(), `{metadata: {labels: {c: d}}, spec: {template: {metadata: {labels: {a: b}}}}}`,
			`{metadata: {labels: {c: d}}, spec: {replicas: 1, selector: {a: b}, ` + template + `}}`,
		},
		"a controller's own selector": {
			core.ReplicationControllers(), `{spec: {replicas: 0, selector: {c: d}, template: {metadata: {labels: {a: b}}}}}`,
			`{metadata: {labels: {a: b}}, spec: {replicas: 0, selector: {c: d}, ` + template + `}}`,
		},
		"service": {core.Services(), `{}`, `{spec: {type: ClusterIP, sessionAffinity: None, internalTrafficPolicy: Cluster}}`},
		"affinity": {
			core.Services(), `{spec: {sessionAffinity: ClientIP}}`, sticky,
		},
		"affinity without an address": {
			core.Services(), `{spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {}}}`,
			sticky,
		},
		"affinity without a time": {
			core.Services(), `{spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {}}}}`,
			sticky,
		},
		"ports": {
			core.Services(), `{spec: {ports: [{port: 80}, {port: 81, targetPort: 0}, {port: 82, targetPort: ""}, {port: 83, targetPort: 8083, protocol: UDP}, {port: 84, targetPort: web}]}}`,
			`{spec: {type: ClusterIP, sessionAffinity: None, internalTrafficPolicy: Cluster, ports: [{port: 80, targetPort: 80, protocol: TCP}, {port: 81, targetPort: 81, protocol: TCP}, {port: 82, targetPort: 82, protocol: TCP},
  {port: 83, targetPort: 8083, protocol: UDP}, {port: 84, targetPort: web, protocol: TCP}]}}`,
		},
		"traffic from outside, node ports": {core.Services(), `{spec: {type: NodePort}}`, `{spec: {type: NodePort, sessionAffinity: None, internalTrafficPolicy: Cluster, externalTrafficPolicy: Cluster}}`},
		"traffic from outside, addresses":  {core.Services(), `{spec: {externalIPs: [1.2.3.4]}}`, `{spec: {type: ClusterIP, sessionAffinity: None, internalTrafficPolicy: Cluster, externalIPs: [1.2.3.4], externalTrafficPolicy: Cluster}}`},
		"traffic within a node":            {core.Services(), `{spec: {internalTrafficPolicy: Local}}`, `{spec: {type: ClusterIP, sessionAffinity: None, internalTrafficPolicy: Local}}`},
		"no traffic":                       {core.Services(), `{spec: {type: ExternalName}}`, `{spec: {type: ExternalName, sessionAffinity: None}}`},
		"load balancers": {
			core.Services(), `{spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}, {ip: 1.2.3.5, ipMode: Proxy}, {hostname: lb}]}}}`,
			`{spec: {type: LoadBalancer, sessionAffinity: None, internalTrafficPolicy: Cluster, externalTrafficPolicy: Cluster, allocateLoadBalancerNodePorts: true},
  status: {loadBalancer: {ingress: [{ip: 1.2.3.4, ipMode: VIP}, {ip: 1.2.3.5, ipMode: Proxy}, {hostname: lb}]}}}`,
		},
		"endpoints": {
			core.Endpoints(), `{subsets: [{ports: [{}, {protocol: UDP}]}]}`, `{subsets: [{ports: [{protocol: TCP}, {protocol: UDP}]}]}`,
		},
		"secret":      {core.Secrets(), `{}`, `{type: Opaque}`},
		"namespace":   {core.Namespaces(), `{metadata: {name: ns}}`, `{metadata: {name: ns, labels: {kubernetes.io/metadata.name: ns}}}`},
		"allocatable": {core.Nodes(), `{status: {capacity: {cpu: 1, memory: 10G}}}`, `{status: {capacity: {cpu: 1, memory: 10G}, allocatable: {cpu: 1, memory: 10G}}}`},
		"less is allocatable": {
			core.Nodes(), `{status: {capacity: {cpu: 1}, allocatable: {cpu: 500m}}}`, `{status: {capacity: {cpu: 1}, allocatable: {cpu: 500m}}}`,
		},
		"allocatable alone": {core.Nodes(), `{status: {allocatable: {cpu: 500m}}}`, `{status: {allocatable: {cpu: 500m}}}`},
		"limits": {
			core.LimitRanges(), `{spec: {limits: [{type: Container, max: {cpu: 100m}, min: {memory: 100Mi}}, {type: Pod, max: {cpu: 1}}]}}`,
			`{spec: {limits: [{type: Container, max: {cpu: 100m}, min: {memory: 100Mi}, default: {cpu: 100m}, defaultRequest: {cpu: 100m, memory: 100Mi}},
  {type: Pod, max: {cpu: 1}}]}}`,
		},
		"volume": {
			volume.PersistentVolumes(), `{}`, `{spec: {persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem}, status: {phase: Pending}}`,
		},
		"claim of a device": {
			volume.PersistentVolumeClaims(), `{spec: {volumeMode: Block}}`, `{spec: {volumeMode: Block}, status: {phase: Pending}}`,
		},
	} {
		got, want := c.kind.Hub().New(), c.kind.Hub().New()
		if err := errors.Join(yaml.Unmarshal([]byte(c.before), got), yaml.Unmarshal([]byte(c.want), want)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.kind.Hub().Default(got)
		if !resource.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
