//nolint:staticcheck // Endpoints are deprecated, and are still to be kept.
package core

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Endpoints is the resource endpoints.
func Endpoints() *resource.Resource {
	return resource.Define(resource.Definition[corev1.Endpoints, *corev1.Endpoints]{
		GroupVersion: corev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Endpoints", Plural: "endpoints", ShortNames: []string{"ep"}},
		Storage:      resource.Storage{Path: "services/endpoints"},
		Default: func(e *corev1.Endpoints) {
			for i := range e.Subsets {
				for j := range e.Subsets[i].Ports {
					defaults.Zero(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
				}
			}
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*corev1.Endpoints]{
			AllowCreateOnUpdate: true,
			Warnings:            endpointsWarnings,
			Validate:            validateEndpoints,
			ValidateUpdate: func(r *resource.RequestContext, e, old *corev1.Endpoints) field.ErrorList {
				return validateEndpoints(r, e)
			},
		},
		Table: resource.Table[*corev1.Endpoints]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Endpoints", "string", corev1.Endpoints{}.SwaggerDoc()["subsets"]),
				resource.AgeColumn(),
			},
			Row: func(e *corev1.Endpoints, now time.Time) []any {
				return []any{e.Name, endpointsCell(e), resource.Age(e.CreationTimestamp, now)}
			},
		},
	})
}

// endpointsCell shows at most three addresses.
func endpointsCell(e *corev1.Endpoints) string {
	const most = 3
	var list []string
	count := 0
	for i := range e.Subsets {
		subset := &e.Subsets[i]
		count += len(subset.Addresses) * max(len(subset.Ports), 1)
		if len(subset.Ports) == 0 {
			for _, address := range first(subset.Addresses, most-len(list)) {
				list = append(list, address.IP)
			}
		}
		for _, port := range first(subset.Ports, most) {
			for _, address := range first(subset.Addresses, most-len(list)) {
				list = append(list, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	switch {
	case len(e.Subsets) == 0:
		return printers.None
	case count > most:
		return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), count-most)
	default:
		return strings.Join(list, ",")
	}
}

// first returns at most count elements of a list.
func first[T any](list []T, count int) []T { return list[:min(count, len(list))] }

func validateEndpoints(_ *resource.RequestContext, e *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i := range e.Subsets {
		subset, path := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if len(subset.Addresses)+len(subset.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j := range subset.Addresses {
			errs = append(errs, validateEndpointAddress(&subset.Addresses[j], path.Child("addresses").Index(j))...)
		}
		for j := range subset.NotReadyAddresses {
			errs = append(errs, validateEndpointAddress(&subset.NotReadyAddresses[j], path.Child("notReadyAddresses").Index(j))...)
		}
		for j := range subset.Ports {
			errs = append(errs, validateEndpointPort(&subset.Ports[j], len(subset.Ports) > 1, path.Child("ports").Index(j))...)
		}
	}
	return errs
}

// endpointsWarnings warns of addresses in non-standard notation.
func endpointsWarnings(_ *resource.RequestContext, e, _ *corev1.Endpoints) []string {
	var warnings []string
	for i := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		for j := range e.Subsets[i].Addresses {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("addresses").Index(j).Child("ip"), e.Subsets[i].Addresses[j].IP)...)
		}
		for j := range e.Subsets[i].NotReadyAddresses {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Child("notReadyAddresses").Index(j).Child("ip"), e.Subsets[i].NotReadyAddresses[j].IP)...)
		}
	}
	return warnings
}

func validateEndpointAddress(a *corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsValidIPForLegacyField(path.Child("ip"), a.IP, validators.StrictAddresses, nil)
	if a.Hostname != "" {
		errs = append(errs, validators.Label(path.Child("hostname"), a.Hostname)...)
	}
	if a.NodeName != nil {
		errs = append(errs, validators.Subdomain(path.Child("nodeName"), *a.NodeName)...)
	}
	return append(errs, validateEndpointIP(a.IP, path.Child("ip"))...)
}

// validateEndpointIP refuses loopback, link-local and similar addresses,
// through which an endpoint could reach what belongs to the node.
func validateEndpointIP(address string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		return field.ErrorList{field.Invalid(path, address, "must be a valid IP address")}
	}
	switch {
	case ip.IsUnspecified():
		return field.ErrorList{field.Invalid(path, address, fmt.Sprintf("may not be unspecified (%v)", address))}
	case ip.IsLoopback():
		return field.ErrorList{field.Invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")}
	case ip.IsLinkLocalUnicast():
		return field.ErrorList{field.Invalid(path, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")}
	case ip.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}

func validateEndpointPort(p *corev1.EndpointPort, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if named && p.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else if p.Name != "" {
		errs = append(errs, validators.Label(path.Child("name"), p.Name)...)
	}
	errs = append(errs, validators.Problems(path.Child("port"), p.Port, utilvalidation.IsValidPortNum(int(p.Port)))...)
	if p.Protocol == "" {
		errs = append(errs, field.Required(path.Child("protocol"), ""))
	} else {
		errs = append(errs, validators.Protocol(path.Child("protocol"), p.Protocol)...)
	}
	if p.AppProtocol != nil {
		errs = append(errs, validators.Problems(path.Child("appProtocol"), *p.AppProtocol, utilvalidation.IsQualifiedName(*p.AppProtocol))...)
	}
	return errs
}
