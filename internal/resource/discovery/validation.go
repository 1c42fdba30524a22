package discovery

import (
	"net"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of one slice, from the API documentation of EndpointSlice.
const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
	maxTopology  = 16
	maxHints     = 8
)

// strictAddresses is the feature that refuses addresses that parsers read
// differently (KEP-4858).
const strictAddresses = feature.StrictIPCIDRValidation

// validateEndpointSlice checks a slice. Endpoints that an update leaves as they are are not
// checked again: older versions accepted more of them.
func validateEndpointSlice(s *discoveryv1.EndpointSlice, old *discoveryv1.EndpointSlice, strict bool) field.ErrorList {
	errs := validateAddressType(s.AddressType)
	errs = append(errs, validatePorts(field.NewPath("ports"), s.Ports)...)
	endpoints := validateEndpoints(field.NewPath("endpoints"), s, strict)
	if len(endpoints) > 0 && old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return errs
	}
	return append(errs, endpoints...)
}

func validateEndpoints(p *field.Path, s *discoveryv1.EndpointSlice, strict bool) field.ErrorList {
	if len(s.Endpoints) > maxEndpoints {
		return field.ErrorList{field.TooMany(p, len(s.Endpoints), maxEndpoints)}
	}
	var errs field.ErrorList
	for i := range s.Endpoints {
		e, at := &s.Endpoints[i], p.Index(i)
		errs = append(errs, validateAddresses(at.Child("addresses"), e.Addresses, s.AddressType, strict)...)
		errs = append(errs, validateEndpoint(at, e)...)
	}
	return errs
}

func validateAddressType(t discoveryv1.AddressType) field.ErrorList {
	p := field.NewPath("addressType")
	if t == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	return validators.OneOf(p, t, discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
}

func validateAddresses(p *field.Path, addresses []string, t discoveryv1.AddressType, strict bool) field.ErrorList {
	var errs field.ErrorList
	switch {
	case len(addresses) == 0:
		return field.ErrorList{field.Required(p, "")}
	case len(addresses) > maxAddresses:
		errs = append(errs, field.TooMany(p, len(addresses), maxAddresses))
	}
	for i, address := range addresses {
		switch at := p.Index(i); t {
		case discoveryv1.AddressTypeIPv4:
			format := utilvalidation.IsValidIPForLegacyField(at, address, strict, nil)
			errs = append(errs, validateIP(p, at, address, format, netutils.IsIPv4, "must be an IPv4 address")...)
		case discoveryv1.AddressTypeIPv6:
			errs = append(errs, validateIP(p, at, address, utilvalidation.IsValidIP(at, address), netutils.IsIPv6, "must be an IPv6 address")...)
		case discoveryv1.AddressTypeFQDN:
			errs = append(errs, utilvalidation.IsFullyQualifiedDomainName(at, address)...)
		}
	}
	return errs
}

// validateIP requires an address of the family that Services can send to. format are the
// errors of its notation. The error for another family names the list.
func validateIP(list, p *field.Path, address string, format field.ErrorList, family func(net.IP) bool, otherFamily string) field.ErrorList {
	if len(format) > 0 {
		return format
	}
	var errs field.ErrorList
	ip := netutils.ParseIPSloppy(address)
	if !family(ip) {
		errs = append(errs, field.Invalid(list, address, otherFamily))
	}
	if ip.IsUnspecified() {
		errs = append(errs, field.Invalid(p, address, "may not be unspecified (0.0.0.0 or ::)"))
	}
	if ip.IsLoopback() {
		errs = append(errs, field.Invalid(p, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	}
	if ip.IsLinkLocalUnicast() {
		errs = append(errs, field.Invalid(p, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	}
	if ip.IsLinkLocalMulticast() {
		errs = append(errs, field.Invalid(p, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}

func validateEndpoint(p *field.Path, e *discoveryv1.Endpoint) field.ErrorList {
	var errs field.ErrorList
	if e.NodeName != nil {
		errs = append(errs, validators.Subdomain(p.Child("nodeName"), *e.NodeName)...)
	}
	topology := p.Child("deprecatedTopology")
	if len(e.DeprecatedTopology) > maxTopology {
		errs = append(errs, field.TooMany(topology, len(e.DeprecatedTopology), maxTopology))
	}
	errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if e.Hostname != nil {
		errs = append(errs, validators.Label(p.Child("hostname"), *e.Hostname)...)
	}
	if e.Hints != nil {
		errs = append(errs, validateHints(p.Child("hints"), e.Hints)...)
	}
	return errs
}

func validateHints(p *field.Path, h *discoveryv1.EndpointHints) field.ErrorList {
	var errs field.ErrorList
	zones := p.Child("forZones")
	if len(h.ForZones) > maxHints {
		return field.ErrorList{field.TooMany(zones, len(h.ForZones), maxHints)}
	}
	seen := sets.New[string]()
	for i, zone := range h.ForZones {
		at := zones.Index(i).Child("name")
		if seen.Has(zone.Name) {
			errs = append(errs, field.Duplicate(at, zone.Name))
		}
		seen.Insert(zone.Name)
		errs = append(errs, validators.Problems(at, zone.Name, utilvalidation.IsValidLabelValue(zone.Name))...)
	}
	nodes := p.Child("forNodes")
	if len(h.ForNodes) > maxHints {
		return append(errs, field.TooMany(nodes, len(h.ForNodes), maxHints))
	}
	seen = sets.New[string]()
	for i, node := range h.ForNodes {
		at := nodes.Index(i).Child("name")
		if seen.Has(node.Name) {
			errs = append(errs, field.Duplicate(at, node.Name))
		}
		seen.Insert(node.Name)
		errs = append(errs, validators.Subdomain(at, node.Name)...)
	}
	return errs
}

func validatePorts(p *field.Path, ports []discoveryv1.EndpointPort) field.ErrorList {
	if len(ports) > maxPorts {
		return field.ErrorList{field.TooMany(p, len(ports), maxPorts)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, port := range ports {
		at := p.Index(i)
		if port.Name != nil && *port.Name != "" {
			errs = append(errs, validators.Label(at.Child("name"), *port.Name)...)
		}
		if port.Name != nil && seen.Has(*port.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), port.Name))
		} else if port.Name != nil {
			seen.Insert(*port.Name)
		}
		if port.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, validators.OneOf(at.Child("protocol"), *port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		}
		if port.AppProtocol != nil {
			errs = append(errs, validators.Problems(at.Child("appProtocol"), *port.AppProtocol, utilvalidation.IsQualifiedName(*port.AppProtocol))...)
		}
	}
	return errs
}

func validateEndpointSliceUpdate(r *resource.RequestContext, s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := resource.ValidateNamedMetadata(s, true, validation.NameIsDNSSubdomain)
	errs = append(errs, validateEndpointSlice(s, old, r.Features.Enabled(strictAddresses))...)
	return append(errs, validators.Unchanged(field.NewPath("addressType"), s.AddressType, old.AddressType)...)
}

// content has the fields whose changes increment the generation.
type content struct {
	AddressType discoveryv1.AddressType
	Endpoints   []discoveryv1.Endpoint
	Ports       []discoveryv1.EndpointPort
	Labels      map[string]string
}
