package networking

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// NetworkPolicies is the resource networkpolicies.
func NetworkPolicies() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy]{
		GroupVersion:         networkingv1.SchemeGroupVersion,
		Names:                resource.Names{Kind: "NetworkPolicy", Plural: "networkpolicies", ShortNames: []string{"netpol"}},
		Default:              defaultNetworkPolicy,
		Spec:                 func(p *networkingv1.NetworkPolicy) any { return p.Spec },
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*networkingv1.NetworkPolicy]{
			Validate: func(r *resource.RequestContext, p *networkingv1.NetworkPolicy) field.ErrorList {
				return validateNetworkPolicy(p, policyRules{addresses: addresses{strict: r.Features.Enabled(strictAddresses)}})
			},
			ValidateUpdate: func(r *resource.RequestContext, p, old *networkingv1.NetworkPolicy) field.ErrorList {
				rules := policyRules{addresses: addresses{strict: r.Features.Enabled(strictAddresses), known: blocksOf(old)}}
				rules.selectors = validators.SelectorOptions(&old.Spec.PodSelector)
				return validateNetworkPolicy(p, rules)
			},
			Warnings: policyWarnings,
		},
		Table: resource.Table[*networkingv1.NetworkPolicy]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Pod-Selector", "string", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]),
				resource.AgeColumn(),
			},
			Row: func(p *networkingv1.NetworkPolicy, now time.Time) []any {
				return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), resource.Age(p.CreationTimestamp, now)}
			},
		},
	})
}

// policyWarnings warns of CIDRs in non-standard notation.
func policyWarnings(_ *resource.RequestContext, p, _ *networkingv1.NetworkPolicy) []string {
	var warnings []string
	check := func(peers []networkingv1.NetworkPolicyPeer, path *field.Path) {
		for i := range peers {
			block, at := peers[i].IPBlock, path.Index(i).Child("ipBlock")
			if block == nil {
				continue
			}
			warnings = append(warnings, utilvalidation.GetWarningsForCIDR(at.Child("cidr"), block.CIDR)...)
			for k, except := range block.Except {
				warnings = append(warnings, utilvalidation.GetWarningsForCIDR(at.Child("except").Index(k), except)...)
			}
		}
	}
	spec := field.NewPath("spec")
	for i := range p.Spec.Ingress {
		check(p.Spec.Ingress[i].From, spec.Child("ingress").Index(i).Child("from"))
	}
	for i := range p.Spec.Egress {
		check(p.Spec.Egress[i].To, spec.Child("egress").Index(i).Child("to"))
	}
	return warnings
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		defaults.Nil(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// strictAddresses is the feature that refuses addresses that parsers read
// differently (KEP-4858).
const strictAddresses = feature.StrictIPCIDRValidation

// addresses has the rules for addresses in fields that are older than strict
// parsing. It accepts the addresses of the old object.
type addresses struct {
	strict bool
	known  sets.Set[string]
}

// blocksOf returns the CIDRs of a policy.
func blocksOf(n *networkingv1.NetworkPolicy) sets.Set[string] {
	var peers []networkingv1.NetworkPolicyPeer
	for i := range n.Spec.Ingress {
		peers = append(peers, n.Spec.Ingress[i].From...)
	}
	for i := range n.Spec.Egress {
		peers = append(peers, n.Spec.Egress[i].To...)
	}
	blocks := sets.New[string]()
	for i := range peers {
		if block := peers[i].IPBlock; block != nil {
			blocks.Insert(block.CIDR).Insert(block.Except...)
		}
	}
	return blocks
}

// policyRules has the rules for parts of a policy that used to be less strict:
// updates may keep what the old object has.
type policyRules struct {
	addresses
	selectors metav1validation.LabelSelectorValidationOptions
}

func (r *policyRules) validateSelector(p *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, r.selectors, p)
}

func validateNetworkPolicy(n *networkingv1.NetworkPolicy, rules policyRules) field.ErrorList {
	p := field.NewPath("spec")
	errs := rules.validateSelector(p.Child("podSelector"), &n.Spec.PodSelector)
	for i := range n.Spec.Ingress {
		at, r := p.Child("ingress").Index(i), &n.Spec.Ingress[i]
		errs = append(errs, validatePolicyPorts(at.Child("ports"), r.Ports)...)
		errs = append(errs, validatePeers(at.Child("from"), r.From, &rules)...)
	}
	for i := range n.Spec.Egress {
		at, r := p.Child("egress").Index(i), &n.Spec.Egress[i]
		errs = append(errs, validatePolicyPorts(at.Child("ports"), r.Ports)...)
		errs = append(errs, validatePeers(at.Child("to"), r.To, &rules)...)
	}
	types := p.Child("policyTypes")
	if len(n.Spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(types, n.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range n.Spec.PolicyTypes {
		errs = append(errs, validators.OneOf(types.Index(i), t, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return errs
}

func validatePolicyPorts(p *field.Path, ports []networkingv1.NetworkPolicyPort) field.ErrorList {
	var errs field.ErrorList
	for i := range ports {
		at, port := p.Index(i), &ports[i]
		if port.Protocol != nil {
			errs = append(errs, validators.OneOf(at.Child("protocol"), *port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		}
		end := at.Child("endPort")
		switch {
		case port.Port == nil:
			if port.EndPort != nil {
				errs = append(errs, field.Invalid(end, *port.EndPort, "may not be specified when `port` is not specified"))
			}
		case port.Port.Type == intstr.String:
			if port.EndPort != nil {
				errs = append(errs, field.Invalid(end, *port.EndPort, "may not be specified when `port` is non-numeric"))
			}
			errs = append(errs, validators.Problems(at.Child("port"), port.Port.StrVal, utilvalidation.IsValidPortName(port.Port.StrVal))...)
		default:
			errs = append(errs, validators.Port(at.Child("port"), port.Port.IntVal)...)
			if port.EndPort != nil {
				if *port.EndPort < port.Port.IntVal {
					errs = append(errs, field.Invalid(end, *port.EndPort, "must be greater than or equal to `port`"))
				}
				errs = append(errs, validators.Port(end, *port.EndPort)...)
			}
		}
	}
	return errs
}

func validatePeers(p *field.Path, peers []networkingv1.NetworkPolicyPeer, rules *policyRules) field.ErrorList {
	var errs field.ErrorList
	for i := range peers {
		at, peer := p.Index(i), &peers[i]
		selects := peer.PodSelector != nil || peer.NamespaceSelector != nil
		errs = append(errs, rules.validateSelector(at.Child("podSelector"), peer.PodSelector)...)
		errs = append(errs, rules.validateSelector(at.Child("namespaceSelector"), peer.NamespaceSelector)...)
		if peer.IPBlock != nil {
			errs = append(errs, validateIPBlock(at.Child("ipBlock"), peer.IPBlock, rules.addresses)...)
		}
		switch {
		case !selects && peer.IPBlock == nil:
			errs = append(errs, field.Required(at, "must specify a peer"))
		case selects && peer.IPBlock != nil:
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		}
	}
	return errs
}

func validateIPBlock(p *field.Path, b *networkingv1.IPBlock, known addresses) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(p.Child("cidr"), "")}
	}
	errs := validateCIDR(p.Child("cidr"), b.CIDR, known)
	_, outer, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	for i, except := range b.Except {
		at := p.Child("except").Index(i)
		errs = append(errs, validateCIDR(at, except, known)...)
		_, inner, err := netutils.ParseCIDRSloppy(except)
		if err != nil {
			continue
		}
		outerBits, _ := outer.Mask.Size()
		innerBits, _ := inner.Mask.Size()
		if !outer.Contains(inner.IP) || outerBits >= innerBits {
			errs = append(errs, field.Invalid(at, except, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

func validateCIDR(p *field.Path, cidr string, known addresses) field.ErrorList {
	return utilvalidation.IsValidCIDRForLegacyField(p, cidr, known.strict, validators.KnownAddress(known.known, cidr))
}
