package servicecidr

import (
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// gracePeriod is how long a deleted ServiceCIDR stays at least: API
	// servers that have not heard of the deletion may still take an address.
	gracePeriod = 10 * time.Second

	readyMessage = "Kubernetes Service CIDR is ready"
	inUseMessage = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)

// plan is what is to be done with a ServiceCIDR.
type plan struct {
	finalizers []string
	// condition is to be written; nil if it is as it should be.
	condition *metav1.Condition
	// after says when to look again; 0 is at the next event.
	after time.Duration
}

// decide says what becomes of a ServiceCIDR among all of them, with the
// addresses that Services have now.
func decide(cidr *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress, now time.Time) plan {
	p := plan{finalizers: cidr.Finalizers}
	held := slices.Contains(cidr.Finalizers, finalizer)
	switch {
	case cidr.DeletionTimestamp == nil:
		if !held {
			p.finalizers = append(slices.Clone(cidr.Finalizers), finalizer)
		}
		p.condition = changed(cidr, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: readyMessage}, now)
	case !held:
	case inUse(cidr, all, addresses):
		p.condition = changed(cidr, metav1.Condition{
			Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse,
			Reason: networkingv1.ServiceCIDRReasonTerminating, Message: inUseMessage,
		}, now)
	case now.Sub(cidr.DeletionTimestamp.Time) < gracePeriod:
		p.after = gracePeriod - now.Sub(cidr.DeletionTimestamp.Time)
	default:
		p.finalizers = slices.DeleteFunc(slices.Clone(cidr.Finalizers), func(f string) bool { return f == finalizer })
	}
	return p
}

// changed returns the condition as it is to be written; nil if the ServiceCIDR
// has it.
func changed(cidr *networkingv1.ServiceCIDR, wanted metav1.Condition, now time.Time) *metav1.Condition {
	wanted.LastTransitionTime = metav1.NewTime(now)
	if old := meta.FindStatusCondition(cidr.Status.Conditions, wanted.Type); old != nil && old.Status == wanted.Status {
		if old.Reason == wanted.Reason {
			return nil
		}
		wanted.LastTransitionTime = old.LastTransitionTime
	}
	return &wanted
}

// inUse says whether there is an address in the ServiceCIDR that is in none
// that stays.
func inUse(cidr *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress) bool {
	own := prefixesOf(cidr)
	var others []netip.Prefix
	for _, other := range all {
		if other.Name != cidr.Name && other.DeletionTimestamp == nil {
			others = append(others, prefixesOf(other)...)
		}
	}
	return slices.ContainsFunc(addresses, func(a *networkingv1.IPAddress) bool {
		ip, err := netip.ParseAddr(a.Name)
		return err == nil && within(ip, own) && !within(ip, others)
	})
}

func within(ip netip.Addr, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}
