package services

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// addressesOf returns the cluster IPs that a service holds.
func addressesOf(s *corev1.Service) []netip.Addr {
	if !needsAddresses(s) {
		return nil
	}
	var ips []netip.Addr
	for _, text := range s.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// portsOf returns the node ports that a service holds, without duplicates.
func portsOf(s *corev1.Service) []int32 {
	var numbers []int32
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 && !slices.Contains(numbers, p.NodePort) {
			numbers = append(numbers, p.NodePort)
		}
	}
	if p := s.Spec.HealthCheckNodePort; p != 0 && !slices.Contains(numbers, p) {
		numbers = append(numbers, p)
	}
	return numbers
}

func isHeadless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func needsAddresses(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return !isHeadless(s)
	}
	return false
}

// needsPorts reports whether ports without a node port get one.
func needsPorts(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	}
	return false
}

// mayHavePorts reports whether node ports that the service specifies are
// allocated.
func mayHavePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func needsHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// wantedAddress is an element of clusterIPs to be allocated: the given
// address, or any one of the family.
type wantedAddress struct {
	index  int
	family corev1.IPFamily
	given  netip.Addr
}

// wantedAddresses returns the addresses that a service needs besides those it
// holds. A held address stays; validation refuses changes of it. ok is false
// for invalid addresses, which validation refuses, too.
func wantedAddresses(s *corev1.Service, held []netip.Addr) (wanted []wantedAddress, ok bool) {
	families := map[corev1.IPFamily]bool{}
	for i, text := range s.Spec.ClusterIPs {
		if text == "" || i < len(held) {
			continue
		}
		ip, err := netip.ParseAddr(text)
		if err != nil || families[familyOf(ip)] {
			return nil, false
		}
		families[familyOf(ip)] = true
		if i < len(s.Spec.IPFamilies) && s.Spec.IPFamilies[i] != familyOf(ip) {
			return nil, false
		}
		wanted = append(wanted, wantedAddress{i, familyOf(ip), ip})
	}
	for i, f := range s.Spec.IPFamilies {
		if i < len(held) || i < len(s.Spec.ClusterIPs) && s.Spec.ClusterIPs[i] != "" {
			continue
		}
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			return nil, false
		}
		wanted = append(wanted, wantedAddress{index: i, family: f})
	}
	return wanted, true
}
