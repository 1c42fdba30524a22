package networking

import (
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// classAnnotation is the annotation that the field ingressClassName replaced.
const classAnnotation = "kubernetes.io/ingress.class"

// Ingresses is the resource ingresses.
func Ingresses() *resource.Resource {
	return resource.Define(resource.Definition[networkingv1.Ingress, *networkingv1.Ingress]{
		GroupVersion: networkingv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "Ingress", Plural: "ingresses", ShortNames: []string{"ing"}},
		Storage:      resource.Storage{Path: "ingress"},
		Spec:         func(i *networkingv1.Ingress) any { return i.Spec },
		Status: resource.Status[*networkingv1.Ingress]{
			Copy: func(i, from *networkingv1.Ingress) { i.Status = from.Status },
			Validate: func(r *resource.RequestContext, i, old *networkingv1.Ingress) field.ErrorList {
				known := addresses{strict: r.Features.Enabled(strictAddresses), known: sets.New[string]()}
				for _, point := range old.Status.LoadBalancer.Ingress {
					known.known.Insert(point.IP)
				}
				return validateIngressStatus(field.NewPath("status", "loadBalancer", "ingress"), i.Status.LoadBalancer.Ingress, known)
			},
			Warnings: ingressStatusWarnings,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*networkingv1.Ingress]{
			Validate: func(_ *resource.RequestContext, i *networkingv1.Ingress) field.ErrorList {
				errs := validateIngressSpec(field.NewPath("spec"), &i.Spec, ingressLeniency{})
				if class, named := i.Annotations[classAnnotation]; named && i.Spec.IngressClassName != nil && class != *i.Spec.IngressClassName {
					errs = append(errs, field.Invalid(field.NewPath("annotations").Child(classAnnotation), class, "must match `ingressClassName` when both are specified"))
				}
				return errs
			},
			ValidateUpdate: func(_ *resource.RequestContext, i, old *networkingv1.Ingress) field.ErrorList {
				errs := resource.ValidateNamedMetadata(i, true, validation.NameIsDNSSubdomain)
				return append(errs, validateIngressSpec(field.NewPath("spec"), &i.Spec, lenientAbout(&old.Spec))...)
			},
			Warnings: func(_ *resource.RequestContext, i, old *networkingv1.Ingress) []string {
				if _, named := i.Annotations[classAnnotation]; named && old == nil && i.Spec.IngressClassName == nil {
					return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)}
				}
				return nil
			},
		},
		Table: resource.Table[*networkingv1.Ingress]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Class", "string", "The name of the IngressClass resource that should be used for additional configuration"),
				resource.Column("Hosts", "string", "Hosts that incoming requests are matched against before the ingress rule"),
				resource.Column("Address", "string", "Address is a list containing ingress points for the load-balancer"),
				resource.Column("Ports", "string", "Ports of TLS configurations that open"),
				resource.AgeColumn(),
			},
			Row: ingressRow,
		},
	})
}

// ingressStatusWarnings warns of addresses in other notations than the usual one.
func ingressStatusWarnings(i *networkingv1.Ingress) []string {
	var warnings []string
	path := field.NewPath("status", "loadBalancer", "ingress")
	for n, point := range i.Status.LoadBalancer.Ingress {
		if point.IP != "" {
			warnings = append(warnings, utilvalidation.GetWarningsForIP(path.Index(n), point.IP)...)
		}
	}
	return warnings
}

func ingressRow(i *networkingv1.Ingress, now time.Time) []any {
	class, ports := ptr.Deref(i.Spec.IngressClassName, printers.None), "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		i.Name, class, hostsCell(i.Spec.Rules), addressCell(i.Status.LoadBalancer.Ingress), ports,
		resource.Age(i.CreationTimestamp, now),
	}
}

// shownHosts is how many hosts a table cell shows.
const shownHosts = 3

func hostsCell(rules []networkingv1.IngressRule) string {
	var hosts []string
	for i, rule := range rules {
		if len(hosts) == shownHosts {
			return fmt.Sprintf("%s + %d more...", strings.Join(hosts, ","), len(rules)-shownHosts)
		}
		if rules[i].Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	if len(hosts) == 0 {
		return "*"
	}
	return strings.Join(hosts, ",")
}

func addressCell(points []networkingv1.IngressLoadBalancerIngress) string {
	var addresses []string
	for i := range points {
		if points[i].IP != "" {
			addresses = append(addresses, points[i].IP)
		} else if points[i].Hostname != "" {
			addresses = append(addresses, points[i].Hostname)
		}
	}
	slices.Sort(addresses)
	return strings.Join(slices.Compact(addresses), ",")
}
