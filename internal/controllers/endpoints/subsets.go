//nolint:staticcheck // Endpoints are deprecated but must be maintained.
package endpoints

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	reconciler "k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/utils/dump"
)

// capacity is the maximum number of addresses in an Endpoints object.
const capacity = 1000

// subsets returns the endpoints of a Service for the pods that its selector matches, in
// upstream's canonical form: ports with the same addresses are in one subset. truncated is
// true if there were more addresses than capacity; addresses that are not ready are dropped
// first.
func subsets(service *v1.Service, pods []*v1.Pod) (out []v1.EndpointSubset, truncated bool) {
	byPort := map[portKey]*v1.EndpointSubset{}
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
		ready := service.Spec.PublishNotReadyAddresses || endpointsliceutil.IsPodReady(pod)
		for key, port := range ports {
			subset := byPort[key]
			if subset == nil {
				subset = &v1.EndpointSubset{Ports: port}
				byPort[key] = subset
			}
			if ready {
				subset.Addresses = append(subset.Addresses, address)
			} else {
				subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
			}
		}
	}
	byAddresses := map[string]*v1.EndpointSubset{}
	for _, subset := range byPort {
		slices.SortFunc(subset.Addresses, compareAddresses)
		slices.SortFunc(subset.NotReadyAddresses, compareAddresses)
		key := namesOf(subset.Addresses) + "/" + namesOf(subset.NotReadyAddresses)
		if same := byAddresses[key]; same != nil {
			same.Ports = append(same.Ports, subset.Ports...)
		} else {
			byAddresses[key] = subset
		}
	}
	for _, subset := range byAddresses {
		sortByHash(subset.Ports)
		out = append(out, *subset)
	}
	sortByHash(out)
	return truncate(out)
}

// portKey identifies a port. It is empty for the pods of a headless Service without ports.
type portKey struct {
	name     string
	number   int32
	protocol v1.Protocol
}

// namesOf returns a string that is the same for the same addresses.
func namesOf(addresses []v1.EndpointAddress) string {
	var out strings.Builder
	for _, a := range addresses {
		out.WriteString(a.IP + "," + string(a.TargetRef.UID) + "," + a.TargetRef.Name + ";")
	}
	return out.String()
}

// sortByHash sorts ports or subsets as upstream does, by a hash of their contents.
func sortByHash[T any](items []T) {
	slices.SortFunc(items, func(a, b T) int {
		x, y := md5.Sum([]byte(dump.ForHash(a))), md5.Sum([]byte(dump.ForHash(b)))
		return bytes.Compare(x[:], y[:])
	})
}

// addressOf returns the endpoint address of a pod for the Service's IP family.
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

// podIP returns the pod's address of the Service's first IP family. For a Service without IP
// families, it uses the family of the cluster IP, or of the pod's primary address.
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

// portsOf returns the Service's ports of a pod, each in a slice. ok is false if the Service
// has ports but the pod has none of them.
func portsOf(service *v1.Service, pod *v1.Pod) (ports map[portKey][]v1.EndpointPort, ok bool) {
	if len(service.Spec.Ports) == 0 {
		return map[portKey][]v1.EndpointPort{{}: nil}, true
	}
	ports = map[portKey][]v1.EndpointPort{}
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number, err := reconciler.FindPort(pod, port)
		if err != nil {
			continue
		}
		key := portKey{port.Name, int32(number), port.Protocol}
		if _, again := ports[key]; !again {
			ports[key] = []v1.EndpointPort{{Name: port.Name, Port: int32(number), Protocol: port.Protocol, AppProtocol: port.AppProtocol}}
		}
	}
	return ports, len(ports) > 0
}

// compareAddresses orders addresses as upstream does, as strings.
func compareAddresses(a, b v1.EndpointAddress) int {
	return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.TargetRef.UID, b.TargetRef.UID))
}

// truncate drops addresses above the capacity, first those that are not ready.
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
