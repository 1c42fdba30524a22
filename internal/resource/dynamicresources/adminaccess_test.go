package dynamicresources

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
)

// TestAdminAccess checks that admin access needs the namespace label.
func TestAdminAccess(t *testing.T) {
	in := func(labels map[string]string) *resource.RequestContext {
		return &resource.RequestContext{NamespaceLabels: func() map[string]string { return labels }}
	}
	marked := map[string]string{resourcev1.DRAAdminNamespaceLabelKey: "true"}
	requests := []resourcev1.DeviceRequest{
		{Name: "a", Exactly: &resourcev1.ExactDeviceRequest{}},
		{Name: "b", Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: ptr.To(true)}},
	}
	const want = "spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	if errs := validateAdminAccess(in(nil), requests); len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("elsewhere: %v, want %s", errs, want)
	}
	for name, errs := range map[string]int{
		"in a marked namespace":    len(validateAdminAccess(in(marked), requests)),
		"without the wish":         len(validateAdminAccess(in(nil), requests[:1])),
		"inside the server":        len(validateAdminAccess(&resource.RequestContext{}, requests)),
		"granted before":           len(validateAdminResults(in(nil), granted(true), granted(true))),
		"granted to somebody else": len(validateAdminResults(in(nil), granted(false), nil)),
	} {
		if errs > 0 {
			t.Errorf("refused %s", name)
		}
	}
	if errs := validateAdminResults(in(nil), granted(true), nil); len(errs) != 1 {
		t.Errorf("a grant elsewhere: %v", errs)
	}
}

func granted(access bool) *resourcev1.AllocationResult {
	a := &resourcev1.AllocationResult{}
	a.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{AdminAccess: &access}}
	return a
}
