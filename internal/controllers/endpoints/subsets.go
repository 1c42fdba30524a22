//nolint:staticcheck // Endpoints are deprecated, and are still to be kept.
package endpoints

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	reconciler "k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
)

// capacity is the most addresses that one Endpoints object holds.
const capacity = 1000

// subsets works out the endpoints of a Service from the pods that its
// selector matches. Pods with the same ports are one subset. Addresses, ports
// and subsets are sorted. truncated says that there were more addresses than
// one object may hold; ready ones are kept first.
func subsets(service *v1.Service, pods []*v1.Pod) (out []v1.EndpointSubset, truncated bool) {
	byPorts := map[string]*v1.EndpointSubset{}
	for _, pod := range pods {
		if !endpointsliceutil.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		address, ok := addressOf(service, pod)
		if !ok {
			continue
		}
		ports, ok := portsOf(service, pod)
		if !ok {
			continue
		}
		key := fmt.Sprint(ports)
		subset := byPorts[key]
		if subset == nil {
			subset = &v1.EndpointSubset{Ports: ports}
			byPorts[key] = subset
		}
		if service.Spec.PublishNotReadyAddresses || endpointsliceutil.IsPodReady(pod) {
			subset.Addresses = append(subset.Addresses, address)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
		}
	}
	for _, subset := range byPorts {
		slices.SortFunc(subset.Addresses, compareAddresses)
		slices.SortFunc(subset.NotReadyAddresses, compareAddresses)
		out = append(out, *subset)
	}
	slices.SortFunc(out, func(a, b v1.EndpointSubset) int { return cmp.Compare(fmt.Sprint(a.Ports), fmt.Sprint(b.Ports)) })
	return truncate(out)
}

// addressOf is a pod's endpoint address of the Service's IP family.
func addressOf(service *v1.Service, pod *v1.Pod) (v1.EndpointAddress, bool) {
	ip, ok := podIP(service, pod)
	if !ok {
		return v1.EndpointAddress{}, false
	}
	address := v1.EndpointAddress{
		IP:        ip,
		TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.NodeName != "" {
		node := pod.Spec.NodeName
		address.NodeName = &node
	}
	if endpointsliceutil.ShouldSetHostname(pod, service) {
		address.Hostname = pod.Spec.Hostname
	}
	return address, true
}

// podIP picks the pod's address of the Service's first IP family. A Service
// from before dual-stack has none; its cluster IP tells, else IPv4.
func podIP(service *v1.Service, pod *v1.Pod) (string, bool) {
	ipv6 := false
	switch {
	case len(service.Spec.IPFamilies) > 0:
		ipv6 = service.Spec.IPFamilies[0] == v1.IPv6Protocol
	case service.Spec.ClusterIP != "" && service.Spec.ClusterIP != v1.ClusterIPNone:
		ipv6 = strings.Contains(service.Spec.ClusterIP, ":")
	default:
		ipv6 = strings.Contains(pod.Status.PodIP, ":")
	}
	for _, ip := range pod.Status.PodIPs {
		if strings.Contains(ip.IP, ":") == ipv6 {
			return ip.IP, true
		}
	}
	return "", false
}

// portsOf resolves the Service's ports on a pod. ok is false if the Service
// has ports but the pod has none of them.
func portsOf(service *v1.Service, pod *v1.Pod) (ports []v1.EndpointPort, ok bool) {
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number, err := reconciler.FindPort(pod, port)
		if err != nil {
			continue
		}
		resolved := v1.EndpointPort{Name: port.Name, Port: int32(number), Protocol: port.Protocol, AppProtocol: port.AppProtocol}
		if !slices.ContainsFunc(ports, func(p v1.EndpointPort) bool {
			return p.Name == resolved.Name && p.Port == resolved.Port && p.Protocol == resolved.Protocol
		}) {
			ports = append(ports, resolved)
		}
	}
	slices.SortFunc(ports, func(a, b v1.EndpointPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	return ports, len(ports) > 0 || len(service.Spec.Ports) == 0
}

func compareAddresses(a, b v1.EndpointAddress) int {
	x, _ := netip.ParseAddr(a.IP)
	y, _ := netip.ParseAddr(b.IP)
	return cmp.Or(x.Compare(y), cmp.Compare(a.TargetRef.UID, b.TargetRef.UID))
}

// truncate drops addresses above the capacity, not ready ones first.
func truncate(in []v1.EndpointSubset) (out []v1.EndpointSubset, truncated bool) {
	ready, unready := 0, 0
	for _, s := range in {
		ready += len(s.Addresses)
		unready += len(s.NotReadyAddresses)
	}
	if ready+unready <= capacity {
		return in, false
	}
	left, leftUnready := min(ready, capacity), capacity-min(ready, capacity)
	for _, s := range in {
		s.Addresses = s.Addresses[:min(len(s.Addresses), left)]
		left -= len(s.Addresses)
		s.NotReadyAddresses = s.NotReadyAddresses[:min(len(s.NotReadyAddresses), leftUnready)]
		leftUnready -= len(s.NotReadyAddresses)
		if len(s.Addresses)+len(s.NotReadyAddresses) > 0 {
			out = append(out, s)
		}
	}
	return out, true
}
