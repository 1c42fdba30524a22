package dynamicresources

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
)

// validateAdminAccess allows requests for devices that are in use only in
// namespaces with the label for it (KEP-5018).
func validateAdminAccess(r *resource.RequestContext, requests []resourcev1.DeviceRequest) field.ErrorList {
	i := slices.IndexFunc(requests, func(d resourcev1.DeviceRequest) bool {
		return d.Exactly != nil && ptr.Deref(d.Exactly.AdminAccess, false)
	})
	if i < 0 {
		return nil
	}
	return requireAdminNamespace(r, field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"))
}

// validateAdminResults is validateAdminAccess for an allocation. It accepts
// access that the old allocation has.
func validateAdminResults(r *resource.RequestContext, now, old *resourcev1.AllocationResult) field.ErrorList {
	granted := func(a *resourcev1.AllocationResult) int {
		if a == nil {
			return -1
		}
		return slices.IndexFunc(a.Devices.Results, func(d resourcev1.DeviceRequestAllocationResult) bool { return ptr.Deref(d.AdminAccess, false) })
	}
	i := granted(now)
	if i < 0 || granted(old) >= 0 {
		return nil
	}
	return requireAdminNamespace(r, field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess"))
}

func requireAdminNamespace(r *resource.RequestContext, p *field.Path) field.ErrorList {
	if r.NamespaceLabels != nil && r.NamespaceLabels()[resourcev1.DRAAdminNamespaceLabelKey] != "true" {
		return field.ErrorList{field.Forbidden(p, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace",
			resourcev1.DRAAdminNamespaceLabelKey))}
	}
	return nil
}
