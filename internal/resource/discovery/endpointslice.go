package discovery

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// EndpointSlices is the resource endpointslices.
func EndpointSlices() *resource.Resource {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return resource.Define(resource.Definition[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]{
		GroupVersion: discoveryv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "EndpointSlice", Plural: "endpointslices"},
		Default:      defaultEndpointSlice,
		Spec: func(s *discoveryv1.EndpointSlice) any {
			return content{AddressType: s.AddressType, Endpoints: s.Endpoints, Ports: s.Ports, Labels: s.Labels}
		},
		MetadataUpdateUnchecked: true,
		UpdateValidatesAlone:    true,
		Strategy: resource.Strategy[*discoveryv1.EndpointSlice]{
			Validate: func(r *resource.RequestContext, s *discoveryv1.EndpointSlice) field.ErrorList {
				return validateEndpointSlice(s, nil, r.Features.Enabled(strictAddresses))
			},
			PrepareForCreate: func(_ *resource.RequestContext, s *discoveryv1.EndpointSlice) { dropTopology(s, nil) },
			PrepareForUpdate: func(_ *resource.RequestContext, s, old *discoveryv1.EndpointSlice) { dropTopology(s, old) },
			ValidateUpdate:   validateEndpointSliceUpdate,
			Warnings:         endpointSliceWarnings,
		},
		Table: resource.Table[*discoveryv1.EndpointSlice]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("AddressType", "string", doc["addressType"]),
				resource.Column("Ports", "string", doc["ports"]),
				resource.Column("Endpoints", "string", doc["endpoints"]),
				resource.AgeColumn(),
			},
			Row: endpointSliceRow,
		},
	})
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	defaults.Absent(&s.Endpoints)
	defaults.Absent(&s.Ports)
	for i := range s.Ports {
		defaults.Nil(&s.Ports[i].Name, "")
		defaults.Nil(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// shownItems is how many ports and endpoints a table cell shows.
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
		return printers.Unset
	}
	return printers.Head(items, shownItems)
}

// dropTopology clears deprecatedTopology, which clients of this version cannot
// write, unless no endpoint changes. It moves the name of the node to
// nodeName.
func dropTopology(s, old *discoveryv1.EndpointSlice) {
	nodes := sets.New[string]()
	if old != nil {
		if resource.Equal(s.Endpoints, old.Endpoints) {
			return
		}
		for i := range old.Endpoints {
			nodes.Insert(old.Endpoints[i].DeprecatedTopology[corev1.LabelHostname])
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		node := e.DeprecatedTopology[corev1.LabelHostname]
		if e.NodeName == nil && nodes.Has(node) && len(utilvalidation.IsDNS1123Subdomain(node)) == 0 {
			e.NodeName = &node
		}
		e.DeprecatedTopology = nil
	}
}

// endpointSliceWarnings warns of addresses in non-standard notation, and of
// names in place of addresses.
func endpointSliceWarnings(_ *resource.RequestContext, s, old *discoveryv1.EndpointSlice) []string {
	var warnings []string
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		warnings = append(warnings, "spec.addressType: FQDN endpoints are deprecated")
	}
	if strings.HasSuffix(s.Labels[discoveryv1.LabelManagedBy], "-controller.k8s.io") {
		return warnings // controllers write canonical addresses
	}
	for i := range s.Endpoints {
		at := field.NewPath("endpoints").Index(i).Child("addresses")
		for k, address := range s.Endpoints[i].Addresses {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(at.Index(k), address)...)
		}
	}
	return warnings
}
