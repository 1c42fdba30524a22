package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

func validateServiceStatus(_ *resource.RequestContext, s, old *corev1.Service) field.ErrorList {
	return validateLoadBalancerStatus(&s.Status.LoadBalancer, &old.Status.LoadBalancer, &s.Spec,
		field.NewPath("status", "loadBalancer"))
}

func validateLoadBalancerStatus(status, old *corev1.LoadBalancerStatus, spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	ingresses := path.Child("ingress")
	if spec.Type != corev1.ServiceTypeLoadBalancer && len(status.Ingress) > 0 && !resource.Equal(status, old) {
		errs = append(errs, field.Forbidden(ingresses, fmt.Sprintf("may only be used when `spec.type` is %q", corev1.ServiceTypeLoadBalancer)))
		return errs
	}
	known := sets.New[string]()
	for _, ingress := range old.Ingress {
		known.Insert(ingress.IP)
	}
	for i, ingress := range status.Ingress {
		at := ingresses.Index(i)
		if ingress.IP != "" {
			errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Child("ip"), ingress.IP, validators.StrictAddresses, validators.KnownAddress(known, ingress.IP))...)
			if ingress.IPMode == nil {
				errs = append(errs, field.Required(at.Child("ipMode"), "must be specified when `ip` is set"))
			} else {
				errs = append(errs, validators.Enum(at.Child("ipMode"), *ingress.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
			}
		} else if ingress.IPMode != nil {
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		}
		if ingress.Hostname != "" {
			errs = append(errs, validators.Subdomain(at.Child("hostname"), ingress.Hostname)...)
			if netutils.ParseIPSloppy(ingress.Hostname) != nil {
				errs = append(errs, field.Invalid(at.Child("hostname"), ingress.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}
