package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func containerWarnings(c *corev1.Container, path *field.Path) []string {
	warnings := fractionWarnings(c.Resources.Limits, path.Child("resources", "limits"))
	warnings = append(warnings, fractionWarnings(c.Resources.Requests, path.Child("resources", "requests"))...)
	seen := map[string]bool{}
	for i := range c.Env {
		if v := &c.Env[i]; seen[v.Name] && !refersToItself(v) {
			warnings = append(warnings, fmt.Sprintf("%s: hides previous definition of %q, which may be dropped when using apply", path.Child("env").Index(i), v.Name))
		}
		seen[c.Env[i].Name] = true
	}
	return warnings
}

// refersToItself reports whether the value of a variable refers to an earlier
// variable of the same name: PATH=$(PATH):/bin.
func refersToItself(v *corev1.EnvVar) bool {
	itself := "$(" + v.Name + ")"
	return v.ValueFrom == nil && v.Value != itself && strings.Contains(v.Value, itself)
}

// fractionWarnings warns of fractions of bytes.
func fractionWarnings(list corev1.ResourceList, at *field.Path) []string {
	var warnings []string
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if quantity, ok := list[name]; ok && quantity.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", at.Key(string(name)), quantity.String()))
		}
	}
	return warnings
}

// portWarnings warns of ports and port names that are used more than once.
func portWarnings(s *corev1.PodSpec, spec *field.Path) []string {
	type place struct {
		at   *field.Path
		port *corev1.ContainerPort
	}
	var warnings []string
	places := map[string][]place{}
	pairs := 0
	eachContainer(s, spec, func(c *corev1.Container, at *field.Path) {
		for i := range c.Ports {
			here := place{at.Child("ports").Index(i), &c.Ports[i]}
			if p := here.port; p.HostIP != "" && p.HostPort == 0 {
				warnings = append(warnings, fmt.Sprintf("%s: hostIP set without hostPort: {Name:%s HostPort:%d ContainerPort:%d Protocol:%s HostIP:%s}",
					here.at, p.Name, p.HostPort, p.ContainerPort, p.Protocol, p.HostIP))
			}
			key := fmt.Sprintf("%d/%s", here.port.ContainerPort, here.port.Protocol)
			if pairs += len(places[key]); pairs > maxPairs || len(warnings) > maxWarnings {
				return
			}
			for _, other := range places[key] {
				if how := portConflict(here.port, other.port); how != "" {
					warnings = append(warnings, fmt.Sprintf("%s: %s port definition with %s", here.at, how, other.at))
				}
			}
			places[key] = append(places[key], here)
		}
	})
	names := map[string]*field.Path{}
	eachContainer(s, spec, func(c *corev1.Container, at *field.Path) {
		for i := range c.Ports {
			name, here := c.Ports[i].Name, at.Child("ports").Index(i)
			first := names[name]
			switch {
			case name == "":
			case first == nil:
				names[name] = here
			default:
				warnings = append(warnings, fmt.Sprintf("%s: duplicate port name %q with %s, services and probes that select ports by name will use %s", here, name, first, first))
			}
		}
	})
	return warnings
}

// portConflict returns how two definitions of one port conflict, or "".
func portConflict(a, b *corev1.ContainerPort) string {
	switch {
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}
