package devices

import (
	"encoding/json"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/coracle-io/coracle/internal/resource/rule"
)

func validateDriverName(p *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(p, name, resourcev1.DriverNameMaxLength))
	}
	return append(errs, rule.Problems(p, name, utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// validateQualifiedName requires an identifier, which a driver's name and a
// slash may precede. Names with more slashes have always been let through.
func validateQualifiedName(p *field.Path, name string) field.ErrorList {
	parts := strings.Split(name, "/")
	switch len(parts) {
	case 1:
		return validateIdentifier(p, name)
	case 2:
	default:
		return nil
	}
	var errs field.ErrorList
	if parts[0] == "" {
		errs = append(errs, field.Invalid(p, "", "the domain must not be empty"))
	} else {
		errs = append(errs, validateDriverName(p, parts[0])...)
	}
	if parts[1] == "" {
		return append(errs, field.Invalid(p, "", "the name must not be empty"))
	}
	return append(errs, validateIdentifier(p, parts[1])...)
}

func validateIdentifier(p *field.Path, id string) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(p, id, resourcev1.DeviceMaxIDLength))
	}
	return append(errs, rule.Problems(p, id, utilvalidation.IsCIdentifier(id))...)
}

func validateFullyQualifiedName(p *field.Path, name resourcev1.FullyQualifiedName) field.ErrorList {
	errs := validateQualifiedName(p, string(name))
	if !strings.Contains(string(name), "/") {
		errs = append(errs, field.Invalid(p, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs
}

// validateSelectors compiles the expressions; those in stored were there
// before.
func validateSelectors(p *field.Path, selectors []resourcev1.DeviceSelector, stored sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	if len(selectors) > resourcev1.DeviceSelectorsMaxSize {
		errs = append(errs, field.TooMany(p, len(selectors), resourcev1.DeviceSelectorsMaxSize))
	}
	for i, selector := range selectors {
		at := p.Index(i).Child("cel")
		if selector.CEL == nil {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		errs = append(errs, validateExpression(at.Child("expression"), selector.CEL.Expression, stored)...)
	}
	return errs
}

func validateExpression(p *field.Path, text string, stored sets.Set[string]) field.ErrorList {
	if len(text) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(p, text, resourcev1.CELSelectorExpressionMaxLength)}
	}
	kind := environment.NewExpressions
	if stored.Has(text) {
		kind = environment.StoredExpressions
	}
	result := cel.GetCompiler(cel.Features{}).CompileCELExpression(text, cel.Options{EnvType: &kind})
	switch {
	case result.Error != nil:
		return field.ErrorList{field.Invalid(p, text, result.Error.Detail)}
	case result.MaxCost > resourcev1.CELSelectorExpressionMaxCost && !stored.Has(text):
		return field.ErrorList{field.Forbidden(p, "too complex, exceeds cost limit")}
	default:
		return nil
	}
}

func validateConfiguration(p *field.Path, c *resourcev1.DeviceConfiguration) field.ErrorList {
	at := p.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateDriverName(at.Child("driver"), c.Opaque.Driver)
	return append(errs, validateParameters(at.Child("parameters"), c.Opaque.Parameters)...)
}

func validateParameters(p *field.Path, parameters runtime.RawExtension) field.ErrorList {
	var object map[string]any
	switch {
	case len(parameters.Raw) == 0:
		return field.ErrorList{field.Required(p, "")}
	case len(parameters.Raw) > resourcev1.OpaqueParametersMaxLength:
		return field.ErrorList{field.TooLong(p, "", resourcev1.OpaqueParametersMaxLength)}
	case json.Unmarshal(parameters.Raw, &object) != nil || object == nil:
		return field.ErrorList{field.Invalid(p, "<value omitted>", "must be a valid JSON object")}
	default:
		return nil
	}
}

func validateTolerations(p *field.Path, tolerations []resourcev1.DeviceToleration) field.ErrorList {
	var errs field.ErrorList
	if len(tolerations) > resourcev1.DeviceTolerationsMaxLength {
		errs = append(errs, field.TooMany(p, len(tolerations), resourcev1.DeviceTolerationsMaxLength))
	}
	for i, t := range tolerations {
		at := p.Index(i)
		if t.Key != "" {
			errs = append(errs, rule.Problems(at.Child("key"), t.Key, utilvalidation.IsQualifiedName(t.Key))...)
		}
		switch t.Operator {
		case resourcev1.DeviceTolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty for operator `Exists`"))
			}
		case resourcev1.DeviceTolerationOpEqual:
			errs = append(errs, rule.Problems(at.Child("value"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
		case "":
			errs = append(errs, field.Required(at.Child("operator"), ""))
		default:
			errs = append(errs, rule.OneOf(at.Child("operator"), t.Operator, resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)...)
		}
		if t.Effect != "" {
			errs = append(errs, rule.OneOf(at.Child("effect"), t.Effect, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)...)
		}
	}
	return errs
}
