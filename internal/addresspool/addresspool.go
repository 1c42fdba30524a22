// Package addresspool has the pools from which Services of type LoadBalancer get
// addresses. They are in the ConfigMap kube-system/coracle-address-pools, one key
// for each pool:
//
//	data:
//	  office: |
//	    addresses: [192.0.2.240-192.0.2.250, "2001:db8::/120"]
//	    namespaces: [web]
//
// The API server refuses pools with errors, the service controller gives addresses,
// and the nodes answer for addresses of pools and no others.
package addresspool

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace and Name are those of the ConfigMap with the pools.
const (
	Namespace = metav1.NamespaceSystem
	Name      = "coracle-address-pools"
)

// Class is the load balancer class of Services that want addresses of this project's
// controller. It also serves those without a class.
const Class = "coracle.io/servicelb"

// MostAddresses bounds how many addresses Services have of all pools, and nodes
// announce.
const MostAddresses = 1024

// IsConfig reports whether a ConfigMap, which may be nil, is that of the pools.
func IsConfig(c *v1.ConfigMap) bool { return c != nil && c.Namespace == Namespace && c.Name == Name }

// IsBalanced reports whether a Service, which may be nil, is of type LoadBalancer
// and of this project's class.
func IsBalanced(s *v1.Service) bool {
	return s != nil && s.Spec.Type == v1.ServiceTypeLoadBalancer && (s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == Class)
}

// IsLocal reports whether only nodes with endpoints of a Service serve clients from outside.
func IsLocal(s *v1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
}

// Pools are pools by name, in order. No two have an address in common.
type Pools []Pool

// Pool is a set of addresses for Services.
type Pool struct {
	Name   string
	Ranges []Range // in the order of the configuration, in which they are used
	// AutoAssign says that Services get addresses of the pool without asking for it.
	AutoAssign bool
	// AvoidBuggyIPs leaves out IPv4 addresses that end in .0 and .255, which some
	// devices take for those of networks. Ranges are already without the first and
	// last address of each CIDR then.
	AvoidBuggyIPs bool
	// Namespaces are those whose Services may have addresses of the pool; none means
	// all.
	Namespaces []string
}

// Range is a range of addresses of one family.
type Range struct{ From, To netip.Addr } // both are in it

// Contains reports whether an address is in the range. One with a zone is in none: it would
// be another one than that without.
func (r Range) Contains(a netip.Addr) bool {
	return a.Zone() == "" && r.From.Compare(a) <= 0 && a.Compare(r.To) <= 0
}

// Of returns the pool that has an address, or nil.
func (p Pools) Of(a netip.Addr) *Pool {
	i := slices.IndexFunc(p, func(pool Pool) bool { return pool.Contains(a) })
	if i < 0 {
		return nil
	}
	return &p[i]
}

// Named returns the pool with a name, or nil.
func (p Pools) Named(name string) *Pool {
	i := slices.IndexFunc(p, func(pool Pool) bool { return pool.Name == name })
	if i < 0 {
		return nil
	}
	return &p[i]
}

// Contains reports whether the pool has an address.
func (p *Pool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.Contains(a) }) && !p.Avoids(a)
}

// Avoids reports whether the pool leaves out an address of its ranges.
func (p *Pool) Avoids(a netip.Addr) bool {
	if !p.AvoidBuggyIPs || !a.Is4() {
		return false
	}
	last := a.As4()[3]
	return last == 0 || last == 255
}

// Admits reports whether Services of a namespace may have addresses of the pool.
func (p *Pool) Admits(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Ingress returns the addresses in the status of a Service at which nodes answer.
func Ingress(s *v1.Service) []netip.Addr {
	var list []netip.Addr
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IPMode != nil && *ingress.IPMode != v1.LoadBalancerIPModeVIP {
			continue
		}
		if a, err := netip.ParseAddr(ingress.IP); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) v1.IPFamily {
	if a.Is4() {
		return v1.IPv4Protocol
	}
	return v1.IPv6Protocol
}
