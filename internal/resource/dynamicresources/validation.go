package dynamicresources

import (
	"encoding/json"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validateConfiguration checks a driver's configuration. A stored one can have
// any length.
func validateConfiguration(p *field.Path, c *resourcev1.DeviceConfiguration, stored bool) field.ErrorList {
	at := p.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	most := resourcev1.OpaqueParametersMaxLength
	if stored {
		most = unlimited
	}
	errs := validateDriverName(at.Child("driver"), c.Opaque.Driver)
	return append(errs, validateJSONObject(at.Child("parameters"), c.Opaque.Parameters, most)...)
}

// validateJSONObject requires a JSON object of at most most bytes.
func validateJSONObject(p *field.Path, data runtime.RawExtension, most int) field.ErrorList {
	if len(data.Raw) == 0 {
		return field.ErrorList{field.Required(p, "")}
	}
	if len(data.Raw) > most {
		return field.ErrorList{field.TooLong(p, "", most)}
	}
	const shown = "<value omitted>"
	var value any
	if err := json.Unmarshal(data.Raw, &value); err != nil {
		return field.ErrorList{field.Invalid(p, shown, fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	switch value.(type) {
	case nil:
		return field.ErrorList{field.Required(p, "")}
	case map[string]any:
		return nil
	default:
		return field.ErrorList{field.Invalid(p, shown, "must be a valid JSON object")}
	}
}

func validateTolerations(p *field.Path, tolerations []resourcev1.DeviceToleration) field.ErrorList {
	return validateItems(p, tolerations, unlimited, validateToleration)
}

func validateToleration(p *field.Path, t *resourcev1.DeviceToleration) field.ErrorList {
	const equal, exists = resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, validators.Problems(p.Child("key"), t.Key, utilvalidation.IsQualifiedName(t.Key))...)
	}
	switch t.Operator {
	case exists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(p.Child("value"), t.Value, "must be empty for operator `Exists`"))
		}
	case equal:
		errs = append(errs, validators.Problems(p.Child("value"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
	case "":
		errs = append(errs, field.Required(p.Child("operator"), ""))
	default:
		errs = append(errs, validators.OneOf(p.Child("operator"), t.Operator, equal, exists)...)
	}
	if t.Effect != "" {
		errs = append(errs, validateEffect(p.Child("effect"), t.Effect)...)
	}
	return errs
}

func validateEffect(p *field.Path, effect resourcev1.DeviceTaintEffect) field.ErrorList {
	return validators.OneOf(p, effect, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)
}
