package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of the resolver configuration.
const (
	maxNameservers      = 3
	maxSearches         = 32
	maxSearchCharacters = 2048
)

func dnsPolicies() []corev1.DNSPolicy {
	return []corev1.DNSPolicy{
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone,
	}
}

func validateDNSPolicy(policy corev1.DNSPolicy, path *field.Path) field.ErrorList {
	switch policy {
	case corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone:
		return nil
	case "":
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, policy, dnsPolicies())}
}

// networkRules checks the names and addresses for name resolution.
type networkRules struct{ *specContext }

func (r *networkRules) validateDNSConfig(path *field.Path) field.ErrorList {
	config := r.spec.DNSConfig
	var errs field.ErrorList
	if r.spec.DNSPolicy == corev1.DNSNone {
		if config == nil {
			return field.ErrorList{field.Required(path, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))}
		}
		if len(config.Nameservers) == 0 {
			return field.ErrorList{field.Required(path.Child("nameservers"),
				fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))}
		}
	}
	if config == nil {
		return nil
	}
	if len(config.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(path.Child("nameservers"), config.Nameservers,
			fmt.Sprintf("must not have more than %v nameservers", maxNameservers)))
	}
	for i, server := range config.Nameservers {
		errs = append(errs, r.validateAddress(server, path.Child("nameservers").Index(i))...)
	}
	if len(config.Searches) > maxSearches {
		errs = append(errs, field.Invalid(path.Child("searches"), config.Searches,
			fmt.Sprintf("must not have more than %v search paths", maxSearches)))
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchCharacters {
		errs = append(errs, field.Invalid(path.Child("searches"), config.Searches,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchCharacters)))
	}
	for i, search := range config.Searches {
		// "." is the root domain, which tries names as they are.
		if search == "." {
			continue
		}
		search = strings.TrimSuffix(search, ".")
		errs = append(errs, validators.Problems(path.Child("searches").Index(i), search, utilvalidation.IsDNS1123SubdomainWithUnderscore(search))...)
	}
	for i, option := range config.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

func (r *networkRules) validateHostAliases(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, alias := range r.spec.HostAliases {
		errs = append(errs, r.validateAddress(alias.IP, path.Index(i).Child("ip"))...)
		for j, name := range alias.Hostnames {
			errs = append(errs, validators.Subdomain(path.Index(i).Child("hostnames").Index(j), name)...)
		}
	}
	return errs
}

func (r *networkRules) validateAddress(ip string, path *field.Path) field.ErrorList {
	return utilvalidation.IsValidIPForLegacyField(path, ip, validators.StrictAddresses, validators.KnownAddress(r.OldAddresses, ip))
}
