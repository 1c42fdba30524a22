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
	// gracePeriod is the minimum time between the deletion of a ServiceCIDR and
	// the removal of the finalizer. API servers that have not observed the
	// deletion may still allocate addresses.
	gracePeriod = 10 * time.Second

	readyMessage = "Kubernetes Service CIDR is ready"
	inUseMessage = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)

// actions describes the changes of a ServiceCIDR.
type actions struct {
	finalizers []string
	// condition is the condition to write, or nil if it need not change.
	condition *metav1.Condition
	// after is the time until the next sync; 0 means at the next event.
	after time.Duration
}

// plan returns the changes of a ServiceCIDR, given all ServiceCIDRs and the
// allocated addresses.
func plan(cidr *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress, now time.Time) actions {
	p := actions{finalizers: cidr.Finalizers}
	protected := slices.Contains(cidr.Finalizers, finalizer)
	switch {
	case cidr.DeletionTimestamp == nil:
		if !protected {
			p.finalizers = append(slices.Clone(cidr.Finalizers), finalizer)
		}
		p.condition = changed(cidr, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: readyMessage}, now)
	case !protected:
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

// changed returns the condition to write, or nil if the ServiceCIDR already has
// it.
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

// inUse reports whether an allocated address lies in the ServiceCIDR and in no
// other ServiceCIDR that is not being deleted.
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
