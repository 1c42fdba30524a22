package discovery

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/cell"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// EndpointSlices is the resource endpointslices.
func EndpointSlices() *resource.Resource {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return resource.Define(resource.Definition[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]{
		GroupVersion: discoveryv1.SchemeGroupVersion,
		Kind:         "EndpointSlice",
		Plural:       "endpointslices",
		Default:      defaultEndpointSlice,
		Spec: func(s *discoveryv1.EndpointSlice) any {
			return content{AddressType: s.AddressType, Endpoints: s.Endpoints, Ports: s.Ports, Labels: s.Labels}
		},
		Validate: func(_ *resource.Request, s *discoveryv1.EndpointSlice) field.ErrorList {
			return validateEndpointSlice(s, nil)
		},
		UpdateValidatesAlone: true,
		ValidateUpdate:       validateEndpointSliceUpdate,
		Warnings:             endpointSliceWarnings,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("AddressType", "string", doc["addressType"]),
			resource.Column("Ports", "string", doc["ports"]),
			resource.Column("Endpoints", "string", doc["endpoints"]),
			resource.AgeColumn(),
		},
		Row: endpointSliceRow,
	})
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	fill.Absent(&s.Endpoints)
	fill.Absent(&s.Ports)
	for i := range s.Ports {
		fill.Nil(&s.Ports[i].Name, "")
		fill.Nil(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// shownItems is how many ports and endpoints a table names.
const shownItems = 3

func endpointSliceRow(s *discoveryv1.EndpointSlice, now time.Time) []any {
	var ports, addresses []string
	for _, port := range s.Ports {
		switch {
		case port.Port != nil:
			ports = append(ports, strconv.Itoa(int(*port.Port)))
		case port.Name != nil && *port.Name != "":
			ports = append(ports, *port.Name)
		default:
			ports = append(ports, "*")
		}
	}
	for i := range s.Endpoints {
		addresses = append(addresses, s.Endpoints[i].Addresses...)
	}
	return []any{
		s.Name, string(s.AddressType), headOrUnset(ports), headOrUnset(addresses), resource.Age(s.CreationTimestamp, now),
	}
}

func headOrUnset(items []string) string {
	if len(items) == 0 {
		return cell.Unset
	}
	return cell.Head(items, shownItems)
}

// endpointSliceWarnings are of addresses in unusual forms.
func endpointSliceWarnings(_ *resource.Request, s, _ *discoveryv1.EndpointSlice) []string {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	var warnings []string
	for i := range s.Endpoints {
		at := field.NewPath("endpoints").Index(i).Child("addresses")
		for k, address := range s.Endpoints[i].Addresses {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(at.Index(k), address)...)
		}
	}
	return warnings
}
