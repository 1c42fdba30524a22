package dynamicresources

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// validateStatusRights refuses changes of a claim's status that need more than
// the permission to write resourceclaims/status (KEP-4817):
//
//	allocation, reservedFor   VERB on resourceclaims/binding, in all namespaces
//	devices of a driver       arbitrary-node:VERB on resourceclaims/driver of the driver's name;
//	                          associated-node:VERB is enough for a service account on the claim's node
func validateStatusRights(r *resource.RequestContext, now, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	if r.AuthorizePart == nil || !r.Features.Enabled(feature.DRAResourceClaimGranularStatusAuthorization) {
		return nil
	}
	var errs field.ErrorList
	p := field.NewPath("status")
	if !equality.Semantic.DeepEqual(now.Allocation, old.Allocation) || !equality.Semantic.DeepEqual(now.ReservedFor, old.ReservedFor) {
		if err := r.AuthorizePart(r.Verb, resourcev1.SubresourceBinding, "", ""); err != nil {
			errs = append(errs, field.Forbidden(p, fmt.Sprintf(
				`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, r.Verb, err)))
		}
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + r.Verb}
	if node := allocatedNode(now.Allocation); node != "" && runsOn(r.User, node) {
		verbs = slices.Insert(verbs, 0, resourcev1.VerbPrefixAssociatedNode+r.Verb)
	}
	for _, driver := range changedDrivers(now, old) {
		if err := mayReport(r, verbs, driver); err != nil {
			errs = append(errs, field.Forbidden(p.Child("devices"), fmt.Sprintf(
				`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, err)))
		}
	}
	return errs
}

// mayReport returns nil if the user has the permission for one of the verbs, or
// the refusal of the first.
func mayReport(r *resource.RequestContext, verbs []string, driver string) error {
	var refusal error
	for _, verb := range verbs {
		err := r.AuthorizePart(verb, resourcev1.SubresourceDriver, r.Namespace, driver)
		if err == nil {
			return nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	return refusal
}

// changedDrivers returns the drivers, sorted, of the device statuses that a
// write adds, changes or removes. Statuses that are removed because their device
// is no longer allocated do not count: who releases a device may do that.
func changedDrivers(now, old *resourcev1.ResourceClaimStatus) []string {
	type device struct{ driver, pool, name, share string }
	of := func(d *resourcev1.AllocatedDeviceStatus) device {
		return device{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
	}
	before := make(map[device]*resourcev1.AllocatedDeviceStatus, len(old.Devices))
	for i := range old.Devices {
		before[of(&old.Devices[i])] = &old.Devices[i]
	}
	changed := sets.New[string]()
	for i := range now.Devices {
		is := &now.Devices[i]
		was, ok := before[of(is)]
		if !ok || !equality.Semantic.DeepEqual(is, was) {
			changed.Insert(is.Driver)
		}
		delete(before, of(is))
	}
	allocated := sets.New[device]()
	if now.Allocation != nil {
		for i := range now.Allocation.Devices.Results {
			result := &now.Allocation.Devices.Results[i]
			allocated.Insert(device{result.Driver, result.Pool, result.Device, ""})
		}
	}
	for removed := range before {
		if removed.share = ""; allocated.Has(removed) {
			changed.Insert(removed.driver)
		}
	}
	return sets.List(changed)
}

// allocatedNode returns the only node on which a claim can be used, or "".
func allocatedNode(a *resourcev1.AllocationResult) string {
	if a == nil || a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := &a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	name := &term.MatchFields[0]
	if name.Key != "metadata.name" || name.Operator != corev1.NodeSelectorOpIn || len(name.Values) != 1 {
		return ""
	}
	return name.Values[0]
}

// runsOn reports whether a user is a service account whose token is bound to a
// pod on the node.
func runsOn(u user.Info, node string) bool {
	if u == nil {
		return false
	}
	if _, _, err := serviceaccount.SplitUsername(u.GetName()); err != nil {
		return false
	}
	nodes := u.GetExtra()[serviceaccount.NodeNameKey]
	return len(nodes) == 1 && nodes[0] == node
}
