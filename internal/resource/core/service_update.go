package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// What creating or updating a service changes in it besides allocation.

func prepareService(_ *resource.Request, s *corev1.Service) {
	s.Status = corev1.ServiceStatus{}
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// prepareServiceUpdate keeps what an old client or a simple change of type
// leaves out but means to keep, and clears what a new type has no use for.
func prepareServiceUpdate(_ *resource.Request, s, old *corev1.Service) {
	syncClusterIPs(s, old)
	keepAllocations(s, old)
	clearUnused(s, old)
}

// syncClusterIPs keeps clusterIP and clusterIPs[0] the same when a client
// changes only the one that it knows.
func syncClusterIPs(s, old *corev1.Service) {
	changed := s.Spec.ClusterIP != old.Spec.ClusterIP
	listChanged := !slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs)
	switch {
	case changed && !listChanged:
		if s.Spec.ClusterIP == "" {
			s.Spec.ClusterIPs = nil
		} else {
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		}
	case !changed && listChanged && len(s.Spec.ClusterIPs) == 0:
		if s.Spec.ClusterIP != "" {
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		}
	}
}

// keepAllocations carries over what had been allocated and was not mentioned.
func keepAllocations(s, old *corev1.Service) {
	if hasClusterIPType(&old.Spec) && hasClusterIPType(&s.Spec) {
		fill.Zero(&s.Spec.ClusterIP, old.Spec.ClusterIP)
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
	}
	if usesNodePorts(old.Spec.Type) && usesNodePorts(s.Spec.Type) {
		keepNodePorts(s, old)
	}
	if needsHealthCheckPort(&old.Spec) && needsHealthCheckPort(&s.Spec) {
		fill.Zero(&s.Spec.HealthCheckNodePort, old.Spec.HealthCheckNodePort)
	}
}

// keepNodePorts copies node ports between ports of the same number and
// protocol that no other port of the new object names.
func keepNodePorts(s, old *corev1.Service) {
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	allocated, used := map[key]int32{}, map[int32]bool{}
	for _, port := range old.Spec.Ports {
		allocated[key{port.Protocol, port.Port}] = port.NodePort
	}
	for _, port := range s.Spec.Ports {
		used[port.NodePort] = true
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.NodePort == 0 {
			if nodePort := allocated[key{port.Protocol, port.Port}]; !used[nodePort] {
				port.NodePort = nodePort
				used[nodePort] = true
			}
		}
	}
}

func needsHealthCheckPort(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// clearUnused drops values that came with the old type and were left as they
// were by a change to a type that has none.
func clearUnused(s, old *corev1.Service) {
	if hasClusterIPType(&old.Spec) && !hasClusterIPType(&s.Spec) {
		if s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIP = ""
		}
		if slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
			s.Spec.ClusterIPs = nil
		}
		if slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies) {
			s.Spec.IPFamilies = nil
		}
		if equal(s.Spec.IPFamilyPolicy, old.Spec.IPFamilyPolicy) {
			s.Spec.IPFamilyPolicy = nil
		}
		if equal(s.Spec.InternalTrafficPolicy, old.Spec.InternalTrafficPolicy) {
			s.Spec.InternalTrafficPolicy = nil
		}
	}
	if usesNodePorts(old.Spec.Type) && !usesNodePorts(s.Spec.Type) {
		clearNodePorts(s, old)
	}
	if needsHealthCheckPort(&old.Spec) && !needsHealthCheckPort(&s.Spec) &&
		s.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
		s.Spec.HealthCheckNodePort = 0
	}
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if equal(s.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			s.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			s.Spec.LoadBalancerClass = nil
		}
	}
	if externallyAccessible(&old.Spec) && !externallyAccessible(&s.Spec) &&
		s.Spec.ExternalTrafficPolicy == old.Spec.ExternalTrafficPolicy {
		s.Spec.ExternalTrafficPolicy = ""
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName && old.Spec.Type == corev1.ServiceTypeExternalName &&
		s.Spec.ExternalName == old.Spec.ExternalName {
		s.Spec.ExternalName = ""
	}
}

func clearNodePorts(s, old *corev1.Service) {
	had := map[int32]bool{}
	for _, port := range old.Spec.Ports {
		had[port.NodePort] = true
	}
	for i := range s.Spec.Ports {
		if had[s.Spec.Ports[i].NodePort] {
			s.Spec.Ports[i].NodePort = 0
		}
	}
}

// AssignServiceFamilies fills in ipFamilies and ipFamilyPolicy as far as they
// follow from the service and the families the cluster has, most preferred
// first. Call it before addresses are allocated.
func AssignServiceFamilies(s, old *corev1.Service, cluster []corev1.IPFamily) {
	if s.Spec.Type == corev1.ServiceTypeExternalName || len(cluster) == 0 {
		return
	}
	spec := &s.Spec
	if old != nil && hasClusterIPType(&old.Spec) {
		if spec.IPFamilyPolicy == nil {
			spec.IPFamilyPolicy = old.Spec.IPFamilyPolicy
		}
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = old.Spec.IPFamilies
		}
	}
	given := len(spec.IPFamilies) > 0
	for _, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone || given {
			continue
		}
		if netutils.IsIPv6String(ip) {
			spec.IPFamilies = append(spec.IPFamilies, corev1.IPv6Protocol)
		} else if netutils.IsIPv4String(ip) {
			spec.IPFamilies = append(spec.IPFamilies, corev1.IPv4Protocol)
		}
	}
	selectorless := len(spec.Selector) == 0 && slices.Equal(spec.ClusterIPs, []string{corev1.ClusterIPNone})
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		switch {
		case len(spec.ClusterIPs) == 2 || len(spec.IPFamilies) == 2:
			policy = corev1.IPFamilyPolicyRequireDualStack
		case selectorless && len(spec.IPFamilies) == 0:
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{cluster[0]}
	}
	wantsTwo := *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack ||
		*spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack && len(cluster) > 1
	if len(spec.IPFamilies) == 1 && wantsTwo && (selectorless || len(cluster) > 1) {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
}

// CheckedServiceFamilies is AssignServiceFamilies unless the addresses or
// families that are given make no sense: then it returns what validation says
// of them, and assigns nothing.
func CheckedServiceFamilies(s, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	var before *corev1.ServiceSpec
	if old != nil {
		before = &old.Spec
	}
	if errs := validateClusterIPs(&s.Spec, before, field.NewPath("spec")); len(errs) > 0 {
		return errs
	}
	AssignServiceFamilies(s, old, cluster)
	return nil
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
