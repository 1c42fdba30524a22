package admission

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quotaplugin "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	quotavalidation "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"
	resources "k8s.io/apiserver/pkg/quota/v1"

	"github.com/coracle-io/coracle/internal/quota"
)

// readLimitedResources reads a ResourceQuotaConfiguration: resources and scopes
// that may only be used where a quota limits them.
func readLimitedResources(raw []byte) ([]resourcequotaapi.LimitedResource, error) {
	c, err := quotaplugin.LoadConfiguration(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return c.LimitedResources, quotavalidation.ValidateConfiguration(c).ToAggregate()
}

// uncovered refuses a write that uses a limited resource, or has a limited scope,
// without a quota of the namespace that covers it. all is what the object uses,
// delta by how much the write changes that. A write that changes no usage is
// allowed.
func (p *resourceQuota) uncovered(a admission.Attributes, all, delta corev1.ResourceList) error {
	if len(p.limited) == 0 {
		return nil
	}
	covered, changes := map[corev1.ResourceName]bool{}, false
	var scopes []corev1.ScopedResourceSelectorRequirement // those of quotas that the object has
	for q := range p.quotas.All(a.GetNamespace()) {
		scopes = append(scopes, quota.Satisfied(quota.Requirements(q), a.GetObject())...)
		if !quota.Selects(q, a.GetObject()) {
			continue
		}
		for name := range q.Status.Hard {
			covered[name] = true
		}
		if a.GetOperation() == admission.Update && !quota.Selects(q, a.GetOldObject()) {
			changes = changes || len(resources.RemoveZeros(all)) > 0
		}
	}
	if changes = changes || len(resources.RemoveZeros(delta)) > 0; !changes {
		return nil
	}
	names := p.limitedNames(a.GetResource().GroupResource(), all)
	if names = slices.DeleteFunc(names, func(name string) bool { return covered[corev1.ResourceName(name)] }); len(names) > 0 {
		return refused(a, "insufficient quota to consume: %s", strings.Join(names, ","))
	}
	var missing []corev1.ScopedResourceSelectorRequirement
	for _, l := range p.limited {
		for _, s := range quota.Satisfied(l.MatchScopes, a.GetObject()) {
			if !slices.ContainsFunc(scopes, func(has corev1.ScopedResourceSelectorRequirement) bool { return has.ScopeName == s.ScopeName }) {
				missing = append(missing, s)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("insufficient quota to match these scopes: %v", missing)
	}
	return nil
}

// limitedNames returns the sorted names of what an object of a resource uses and a
// quota must limit.
func (p *resourceQuota) limitedNames(gr schema.GroupResource, used corev1.ResourceList) []string {
	var names []string
	for _, l := range p.limited {
		if (schema.GroupResource{Group: l.APIGroup, Resource: l.Resource}) != gr {
			continue
		}
		for name, amount := range used {
			if amount.Sign() == 1 && slices.ContainsFunc(l.MatchContains, func(part string) bool { return strings.Contains(string(name), part) }) {
				names = append(names, string(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
