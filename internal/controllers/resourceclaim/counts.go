package resourceclaim

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
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

// existing counts the claims that there are when it is asked, by upstream's name.
type existing struct {
	claims resourcelisters.ResourceClaimLister
	desc   *prometheus.Desc
}

func newExisting(claims resourcelisters.ResourceClaimLister) *existing {
	return &existing{claims, prometheus.NewDesc("dynamic_resource_allocation_resource_claims",
		"[ALPHA] Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be 'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty (manually created by a user).",
		[]string{"allocated", "admin_access", "source"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *existing) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *existing) Collect(out chan<- prometheus.Metric) {
	number := map[[3]string]int{}
	claims, _ := c.claims.List(labels.Everything()) // a cache gives no errors
	for _, claim := range claims {
		number[[3]string{strconv.FormatBool(claim.Status.Allocation != nil), strconv.FormatBool(adminAccess(&claim.Spec)), source(claim)}]++
	}
	for values, n := range number {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), values[:]...)
	}
}

// source returns what a claim was made from.
func source(claim *resourceapi.ResourceClaim) string {
	if claim.Annotations[resourceapi.PodResourceClaimAnnotation] != "" {
		return "resource_claim_template"
	}
	if claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] == "true" {
		return "extended_resource"
	}
	return ""
}
