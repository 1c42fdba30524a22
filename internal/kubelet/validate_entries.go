package kubelet

import (
	"fmt"
	"maps"
	"net"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/node/util/sysctl"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	corepod "github.com/coracle-io/coracle/internal/resource/core/pod"
)

// entries are the lists and maps of which each entry has rules.
func entries(k *kubeletconfig.KubeletConfiguration) []setting {
	out := slices.Concat(enforcements(k), nodeTaints(k), podSysctls(k))
	for _, address := range k.ClusterDNS {
		out = append(out, setting{fmt.Sprintf("clusterDNS (--cluster-dns) %q is not an IP address", address), net.ParseIP(address) == nil})
	}
	return out
}

// enforcements are the entries of enforceNodeAllocatable, and what they need.
func enforcements(k *kubeletconfig.KubeletConfiguration) (out []setting) {
	const field = "enforceNodeAllocatable (--enforce-node-allocatable)"
	known := []string{"pods", noneEnforced, systemReserved, kubeReserved, systemReserved + compressible, kubeReserved + compressible}
	seen := map[string]bool{}
	for _, what := range k.EnforceNodeAllocatable {
		out = append(out,
			setting{fmt.Sprintf("%s %q: want some of %q", field, what, known), !slices.Contains(known, what)},
			setting{fmt.Sprintf("duplicated enforcements %q in %s", what, field), seen[what]},
			setting{fmt.Sprintf("%s: none cannot be used together with %s", field, what), what != noneEnforced && slices.Contains(k.EnforceNodeAllocatable, noneEnforced)},
			setting{fmt.Sprintf("%s: %s cannot be used together with %s", field, what, what+compressible), slices.Contains(k.EnforceNodeAllocatable, what+compressible)},
			setting{fmt.Sprintf("cgroupsPerQOS (--cgroups-per-qos) must be set to true when %q contained in %s", what, field),
				!*k.CgroupsPerQOS && what != noneEnforced && slices.Contains(known, what)})
		seen[what] = true
	}
	for _, group := range reservedGroups(k) {
		out = append(out,
			setting{fmt.Sprintf("%s must be set when %s has %s", group.field, field, group.what), group.path == ""},
			setting{fmt.Sprintf("%s has %s, but nothing is reserved for it", field, group.what), len(group.reserved) == 0})
	}
	return out
}

// nodeTaints are the taints that the Node is registered with.
func nodeTaints(k *kubeletconfig.KubeletConfiguration) (out []setting) {
	const field = "registerWithTaints (--register-with-taints)"
	for i := range k.RegisterWithTaints {
		t := &k.RegisterWithTaints[i]
		problems := slices.Concat(validation.IsQualifiedName(t.Key), validation.IsValidLabelValue(t.Value))
		out = append(out,
			setting{fmt.Sprintf("%s: invalid taint: %q", field, t.ToString()), len(problems) > 0 || len(corepod.ValidateTaintEffect(t.Effect, false, nil)) > 0},
			setting{fmt.Sprintf("%s: taint %q: timeAdded must not be set", field, t.ToString()), t.TimeAdded != nil})
	}
	return out
}

// podSysctls are the names in defaultPodSysctls.
func podSysctls(k *kubeletconfig.KubeletConfiguration) (out []setting) {
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(k.DefaultPodSysctls)) {
		if !corepod.IsSysctlName(name) {
			out = append(out, setting{fmt.Sprintf("%q is not a valid sysctl name for defaultPodSysctls", name), true})
			continue
		}
		namespace, _, _ := sysctl.GetNamespace(name)
		dotted := sysctl.NormalizeName(name)
		out = append(out,
			setting{fmt.Sprintf("%q is not known to be namespaced for defaultPodSysctls", name), namespace == sysctl.UnknownNamespace},
			setting{fmt.Sprintf("duplicate sysctl %q found in defaultPodSysctls", dotted), seen[dotted]})
		seen[dotted] = true
	}
	return out
}
