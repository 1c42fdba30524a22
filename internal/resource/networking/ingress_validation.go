package networking

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// ingressLeniency says what an update need not mend, because older versions have
// stored it.
type ingressLeniency struct {
	secretNames   bool // that are no names
	wildcardRules bool // for hosts with a wildcard, whose paths were not checked
}

func lenientAbout(old *networkingv1.IngressSpec) ingressLeniency {
	var l ingressLeniency
	for i := range old.TLS {
		l.secretNames = l.secretNames || len(validateSecretName(nil, old.TLS[i].SecretName)) > 0
	}
	for i := range old.Rules {
		if r := &old.Rules[i]; strings.Contains(r.Host, "*") && len(validateIngressPaths(nil, r.HTTP)) > 0 {
			l.wildcardRules = true
		}
	}
	return l
}

func validateIngressSpec(p *field.Path, s *networkingv1.IngressSpec, l ingressLeniency) field.ErrorList {
	var errs field.ErrorList
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		errs = append(errs, field.Invalid(p, s.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if s.DefaultBackend != nil {
		errs = append(errs, validateBackend(p.Child("defaultBackend"), s.DefaultBackend)...)
	}
	for i := range s.Rules {
		errs = append(errs, validateIngressRule(p.Child("rules").Index(i), &s.Rules[i], l)...)
	}
	for i, tls := range s.TLS {
		at := p.Child("tls").Index(i)
		for k, host := range tls.Hosts {
			errs = append(errs, validators.Host(at.Child("hosts").Index(k), host)...)
		}
		if !l.secretNames {
			errs = append(errs, validateSecretName(at.Child("secretName"), tls.SecretName)...)
		}
	}
	if s.IngressClassName != nil {
		errs = append(errs, validators.Subdomain(p.Child("ingressClassName"), *s.IngressClassName)...)
	}
	return errs
}

func validateSecretName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return nil
	}
	return validators.Subdomain(p, name)
}

func validateIngressRule(p *field.Path, r *networkingv1.IngressRule, l ingressLeniency) field.ErrorList {
	var errs field.ErrorList
	if r.Host != "" {
		if netutils.ParseIPSloppy(r.Host) != nil {
			errs = append(errs, field.Invalid(p.Child("host"), r.Host, "must be a DNS name, not an IP address"))
		}
		errs = append(errs, validators.Host(p.Child("host"), r.Host)...)
	}
	if l.wildcardRules && strings.Contains(r.Host, "*") {
		return errs
	}
	return append(errs, validateIngressPaths(p.Child("http", "paths"), r.HTTP)...)
}

func validateIngressPaths(p *field.Path, r *networkingv1.HTTPIngressRuleValue) field.ErrorList {
	if r == nil {
		return nil
	}
	if len(r.Paths) == 0 {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	for i := range r.Paths {
		errs = append(errs, validateIngressPath(p.Index(i), &r.Paths[i])...)
	}
	return errs
}

func validateIngressPath(p *field.Path, h *networkingv1.HTTPIngressPath) field.ErrorList {
	if h.PathType == nil {
		return field.ErrorList{field.Required(p.Child("pathType"), "pathType must be specified")}
	}
	const exact, prefix, other = networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific
	var errs field.ErrorList
	switch *h.PathType {
	case exact, prefix:
		errs = append(errs, validateExactPath(p.Child("path"), h.Path)...)
	case other:
		if h.Path != "" && !strings.HasPrefix(h.Path, "/") {
			errs = append(errs, field.Invalid(p.Child("path"), h.Path, "must be an absolute path"))
		}
	default:
		errs = append(errs, field.NotSupported(p.Child("pathType"), *h.PathType, []networkingv1.PathType{exact, other, prefix}))
	}
	return append(errs, validateBackend(p.Child("backend"), &h.Backend)...)
}

func validateExactPath(p *field.Path, path string) field.ErrorList {
	var errs field.ErrorList
	if !strings.HasPrefix(path, "/") {
		errs = append(errs, field.Invalid(p, path, "must be an absolute path"))
	}
	for _, sequence := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, sequence) {
			errs = append(errs, field.Invalid(p, path, fmt.Sprintf("must not contain '%s'", sequence)))
		}
	}
	for _, suffix := range []string{"/..", "/."} {
		if strings.HasSuffix(path, suffix) {
			errs = append(errs, field.Invalid(p, path, fmt.Sprintf("cannot end with '%s'", suffix)))
		}
	}
	return errs
}

func validateBackend(p *field.Path, b *networkingv1.IngressBackend) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(p, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateTypedReference(p.Child("resource"), b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name)
	case b.Service != nil:
		return validateServiceBackend(p, b.Service)
	default:
		return field.ErrorList{field.Invalid(p, "", "resource or service backend is required")}
	}
}

func validateServiceBackend(p *field.Path, s *networkingv1.IngressServiceBackend) field.ErrorList {
	var errs field.ErrorList
	at := p.Child("service")
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, validators.Label(at.Child("name"), s.Name)...)
	}
	switch name, number := s.Port.Name, s.Port.Number; {
	case name != "" && number != 0:
		errs = append(errs, field.Invalid(p, "", "cannot set both port name & port number"))
	case name != "":
		errs = append(errs, validators.Problems(at.Child("port", "name"), name, utilvalidation.IsValidPortName(name))...)
	case number != 0:
		errs = append(errs, validators.Port(at.Child("port", "number"), number)...)
	default:
		errs = append(errs, field.Required(p, "port name or number is required"))
	}
	return errs
}

func validateIngressStatus(p *field.Path, points []networkingv1.IngressLoadBalancerIngress, known addresses) field.ErrorList {
	var errs field.ErrorList
	for i := range points {
		at := p.Index(i)
		if points[i].IP != "" {
			errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Child("ip"), points[i].IP, known.strict, validators.KnownAddress(known.known, points[i].IP))...)
		}
		if host := points[i].Hostname; host != "" {
			errs = append(errs, validators.Subdomain(at.Child("hostname"), host)...)
			if netutils.ParseIPSloppy(host) != nil {
				errs = append(errs, field.Invalid(at.Child("hostname"), host, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}
