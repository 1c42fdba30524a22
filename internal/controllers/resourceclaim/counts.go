package resourceclaim

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// newCreations returns the metric of claims that the controller has tried to create, by
// upstream's name.
func newCreations() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "dynamic_resource_allocation", Name: "resourceclaim_creates_total",
		Help: "[ALPHA] Number of ResourceClaims creation requests, categorized by creation status, admin access, and owning API group and kind (either Pod or scheduling.k8s.io/PodGroup)",
	}, []string{"status", "admin_access", "owner_api_group", "owner_api_kind"})
}

// createdForPod counts an attempt to create a claim for a pod.
func (c *claims) createdForPod(spec *resourceapi.ResourceClaimSpec, err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	c.creations.WithLabelValues(status, strconv.FormatBool(adminAccess(spec)), "", "Pod").Inc()
}

// adminAccess reports whether a claim asks for devices that others may use.
func adminAccess(spec *resourceapi.ResourceClaimSpec) bool {
	return slices.ContainsFunc(spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		return r.Exactly != nil && ptr.Deref(r.Exactly.AdminAccess, false)
	})
}
