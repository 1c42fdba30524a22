package proxy

import (
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/client"
)

// reduce returns what the proxy uses of an object, which is a copy. Each node keeps that
// of all Services, EndpointSlices and nodes of the cluster, and of its own pods. It
// returns other objects as they are.
func reduce(obj any) (any, error) {
	switch o := obj.(type) {
	case *v1.Service:
		return reducedService(o), nil
	case *discoveryv1.EndpointSlice:
		return reducedSlice(o), nil
	case *v1.Node:
		return &v1.Node{
			ObjectMeta: reducedMeta(&o.ObjectMeta, v1.LabelTopologyZone),
			Spec:       v1.NodeSpec{PodCIDRs: o.Spec.PodCIDRs, Taints: o.Spec.Taints},
			Status:     v1.NodeStatus{Addresses: o.Status.Addresses},
		}, nil
	case *v1.Pod:
		return &v1.Pod{
			ObjectMeta: reducedMeta(&o.ObjectMeta),
			Spec: v1.PodSpec{
				NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork,
				InitContainers: withHostPorts(o.Spec.InitContainers), Containers: withHostPorts(o.Spec.Containers),
			},
			Status: v1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs},
		}, nil
	}
	return obj, nil
}

// reducedMeta returns metadata with the given labels only, if they are there.
func reducedMeta(o *metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	out := client.Identity(o)
	out.CreationTimestamp, out.DeletionTimestamp = o.CreationTimestamp, o.DeletionTimestamp
	for _, name := range labels {
		if value, ok := o.Labels[name]; ok {
			if out.Labels == nil {
				out.Labels = map[string]string{}
			}
			out.Labels[name] = value
		}
	}
	return out
}

func reducedService(o *v1.Service) *v1.Service {
	out := &v1.Service{
		ObjectMeta: reducedMeta(&o.ObjectMeta, v1.IsHeadlessService, otherProxy),
		Spec: v1.ServiceSpec{
			Type: o.Spec.Type, ClusterIP: o.Spec.ClusterIP, ClusterIPs: o.Spec.ClusterIPs, ExternalIPs: o.Spec.ExternalIPs,
			SessionAffinity: o.Spec.SessionAffinity, SessionAffinityConfig: o.Spec.SessionAffinityConfig,
			LoadBalancerSourceRanges: o.Spec.LoadBalancerSourceRanges, HealthCheckNodePort: o.Spec.HealthCheckNodePort,
			ExternalTrafficPolicy: o.Spec.ExternalTrafficPolicy, InternalTrafficPolicy: o.Spec.InternalTrafficPolicy,
		},
	}
	for i := range o.Spec.Ports {
		p := &o.Spec.Ports[i]
		out.Spec.Ports = append(out.Spec.Ports, v1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, NodePort: p.NodePort})
	}
	for i := range o.Status.LoadBalancer.Ingress {
		in := &o.Status.LoadBalancer.Ingress[i]
		out.Status.LoadBalancer.Ingress = append(out.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: in.IP, IPMode: in.IPMode})
	}
	return out
}

func reducedSlice(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{ObjectMeta: reducedMeta(&o.ObjectMeta, discoveryv1.LabelServiceName, v1.IsHeadlessService, otherProxy), AddressType: o.AddressType}
	if at, ok := o.Annotations[v1.EndpointsLastChangeTriggerTime]; ok {
		out.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: at}
	}
	for _, p := range o.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	out.Endpoints = make([]discoveryv1.Endpoint, len(o.Endpoints))
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		out.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName, Hints: e.Hints}
	}
	return out
}

// withHostPorts returns the containers that have host ports, with only these.
func withHostPorts(list []v1.Container) (out []v1.Container) {
	for i := range list {
		var ports []v1.ContainerPort
		for _, p := range list[i].Ports {
			if p.HostPort > 0 {
				ports = append(ports, p)
			}
		}
		if len(ports) > 0 {
			out = append(out, v1.Container{Name: list[i].Name, RestartPolicy: list[i].RestartPolicy, Ports: ports})
		}
	}
	return out
}
