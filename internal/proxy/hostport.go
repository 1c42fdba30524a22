package proxy

import (
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/podquery"
)

// podHostPorts returns the host ports of a pod for which it needs rules. A pod in
// the host's network needs none. A pod that has ended or has no address has none. Of
// the ports at addresses that the node does not have, to which nothing leads, it returns
// mostTold: any number of pods may have tens of thousands.
func podHostPorts(pod *v1.Pod, isLocal func(netip.Addr) bool) map[LocalPort]HostPort {
	result := map[LocalPort]HostPort{}
	elsewhere := 0
	if pod.Spec.HostNetwork || podquery.IsFinished(pod) {
		return result
	}
	for _, ip := range pod.Status.PodIPs {
		a, err := parseAddress(ip.IP)
		if err != nil {
			continue
		}
		for host, port := range podquery.HostPorts(&pod.Spec) {
			if host.Address.IsValid() && host.Address.Is4() != a.Is4() {
				continue
			}
			if host.Address.IsValid() && !isLocal(host.Address) {
				if elsewhere++; elsewhere > mostTold {
					continue
				}
			}
			key := LocalPort{Address: host.Address, Port: uint16(host.Port), Protocol: host.Protocol, Family: familyOf(a)}
			result[key] = HostPort{
				Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
				To:  netip.AddrPortFrom(a, uint16(port.ContainerPort)),
			}
		}
	}
	return result
}

// anywhere is for podHostPorts where the addresses of the node do not matter.
func anywhere(netip.Addr) bool { return true }

// hostPorts returns the host ports of pods. The kubelet admits no two pods with one
// host port; of pods that it does not ask about, such as static ones, the oldest
// gets it.
func hostPorts(pods map[types.NamespacedName]*v1.Pod, isLocal func(netip.Addr) bool) map[LocalPort]HostPort {
	all := map[LocalPort]HostPort{}
	oldestFirst := slices.SortedFunc(maps.Values(pods), order.ByAge)
	for _, pod := range oldestFirst {
		for key, to := range podHostPorts(pod, isLocal) {
			if _, taken := all[key]; !taken {
				all[key] = to
			}
		}
	}
	return all
}
