package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// This file has the changes that creating or updating a service makes to it,
// except for allocation.

func prepareService(_ *resource.RequestContext, s *corev1.Service) {
	s.Status = corev1.ServiceStatus{}
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// prepareServiceUpdate keeps fields that an old client or a change of type
// leaves out without meaning to clear them, and clears those that the new type
// does not use.
func prepareServiceUpdate(_ *resource.RequestContext, s, old *corev1.Service) {
	syncClusterIPs(s, old)
	keepAllocations(s, old)
	clearUnused(s, old)
}

// syncClusterIPs keeps clusterIP and clusterIPs[0] equal when a client changes
// only the one that it knows.
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
	case !changed && len(s.Spec.ClusterIPs) == 0:
		s.Spec.ClusterIPs = old.Spec.ClusterIPs
	}
}

// keepAllocations copies allocated values that the client left out.
func keepAllocations(s, old *corev1.Service) {
	if hasClusterIPType(&old.Spec) && hasClusterIPType(&s.Spec) {
		defaults.Zero(&s.Spec.ClusterIP, old.Spec.ClusterIP)
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
	}
	if usesNodePorts(old.Spec.Type) && usesNodePorts(s.Spec.Type) {
		keepNodePorts(s, old)
	}
	if needsHealthCheckPort(&old.Spec) && needsHealthCheckPort(&s.Spec) {
		defaults.Zero(&s.Spec.HealthCheckNodePort, old.Spec.HealthCheckNodePort)
	}
}

// keepNodePorts copies node ports between ports of the same name, whose other
// properties may change, unless the client gives that node port to another one.
func keepNodePorts(s, old *corev1.Service) {
	allocated, given := map[string]int32{}, map[int32]bool{}
	for _, port := range old.Spec.Ports {
		allocated[port.Name] = port.NodePort
	}
	for _, port := range s.Spec.Ports {
		given[port.NodePort] = true
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if nodePort := allocated[port.Name]; port.NodePort == 0 && !given[nodePort] {
			port.NodePort = nodePort
		}
	}
}

func needsHealthCheckPort(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// clearUnused clears values that belong to the old type if the client changed
// the type to one that does not use them and left the values unchanged.
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
		if resource.Equal(s.Spec.IPFamilyPolicy, old.Spec.IPFamilyPolicy) {
			s.Spec.IPFamilyPolicy = nil
		}
		if resource.Equal(s.Spec.InternalTrafficPolicy, old.Spec.InternalTrafficPolicy) {
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
		if resource.Equal(s.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			s.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if resource.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
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
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{} // nobody has to wait until the load balancer is gone
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

// validateClusterIPsUpdate keeps the primary address and family. A second one
// may be added, and removed together with the policy that asked for it.
func validateClusterIPsUpdate(s, old *corev1.Service, path *field.Path) field.ErrorList {
	if isHeadless(&s.Spec) && isHeadless(&old.Spec) {
		return nil
	}
	var errs field.ErrorList
	const fixed = "may not change once set"
	is, was, list := s.Spec.ClusterIPs, old.Spec.ClusterIPs, path.Child("clusterIPs")
	if len(is) > 0 && len(was) > 0 && is[0] != was[0] && was[0] != "" && s.Spec.ClusterIP != "" {
		errs = append(errs, field.Invalid(list.Index(0), is, fixed))
	}
	if len(is) > 1 && len(was) > 1 && is[1] != was[1] {
		errs = append(errs, field.Invalid(list.Index(1), is, fixed))
	}
	policy := s.Spec.IPFamilyPolicy
	single := policy != nil && *policy == corev1.IPFamilyPolicySingleStack
	if len(is) == 1 && len(was) > 1 && !single {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), policy, "must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	now, before, families := s.Spec.IPFamilies, old.Spec.IPFamilies, path.Child("ipFamilies")
	if len(now) > 0 && len(before) > 0 && now[0] != before[0] {
		errs = append(errs, field.Invalid(families.Index(0), now, fixed))
	}
	if len(now) > 1 && len(before) > 1 && now[1] != before[1] {
		errs = append(errs, field.Invalid(families.Index(0), now, fixed))
	}
	if len(now) == 1 && len(before) > 1 && !single {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), policy, "must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}
