package storage

import (
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of parameters and of driver names, in bytes.
const (
	maxParameters     = 512
	maxParametersSize = 256 << 10
	maxDriverName     = 63
	maxNodeID         = 256
)

// Limits of the expiration of token requests, in seconds.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

const minAllocatableUpdateSeconds = 10

// validateDriverName checks the name of a CSI driver.
func validateDriverName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if len(name) > maxDriverName {
		errs = append(errs, field.TooLong(p, name, maxDriverName))
	}
	return append(errs, validators.Problems(p, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// validateProvisioner checks the name of a provisioner, in which case does not
// matter.
func validateProvisioner(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	lower := strings.ToLower(name)
	return validators.Problems(p, lower, utilvalidation.IsQualifiedName(lower))
}

func validateParameters(p *field.Path, parameters map[string]string, required bool) field.ErrorList {
	if len(parameters) > maxParameters {
		return field.ErrorList{field.TooLong(p, "", maxParameters)}
	}
	var errs field.ErrorList
	size := 0
	for key, value := range parameters {
		if key == "" {
			errs = append(errs, field.Invalid(p, key, "field can not be empty."))
		}
		size += len(key) + len(value)
	}
	if size > maxParametersSize {
		errs = append(errs, field.TooLong(p, "", maxParametersSize))
	}
	if required && len(parameters) == 0 {
		errs = append(errs, field.Required(p, "must contain at least one key/value pair"))
	}
	return errs
}
