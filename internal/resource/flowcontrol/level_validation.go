package flowcontrol

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

const (
	maxQueues = 10 * 1000 * 1000
	// preserveZeroShares is an annotation for the version v1beta3, which has no other way to say that
	// shares of 0 are meant.
	preserveZeroShares = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
)

func validatePriorityLevel(_ *resource.RequestContext, l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	const exempt, limited = flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited
	p, s := field.NewPath("spec"), &l.Spec
	var errs field.ErrorList
	if _, ok := l.Annotations[preserveZeroShares]; ok {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations"), fmt.Sprintf("annotation '%s' is forbidden", preserveZeroShares)))
	}
	if (l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (s.Type == exempt) {
		errs = append(errs, field.Invalid(p.Child("type"), s.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	errs = append(errs, validateMandatoryLevel(p, l)...)
	switch s.Type {
	case exempt:
		if s.Exempt != nil {
			errs = append(errs, validateShares(p.Child("exempt"), s.Exempt.NominalConcurrencyShares, s.Exempt.LendablePercent)...)
		}
	case limited:
		if s.Limited != nil {
			errs = append(errs, validateLimited(p.Child("limited"), s.Limited)...)
		}
	case "": // see validateParts
	default:
		errs = append(errs, field.NotSupported(p.Child("type"), s.Type, []flowcontrolv1.PriorityLevelEnablement{exempt, limited}))
	}
	return append(errs, validateParts(p, s)...)
}

// validateParts checks that a spec has its types and exactly the parts that they call
// for, by the tags of the types. Its errors come last.
func validateParts(p *field.Path, s *flowcontrolv1.PriorityLevelConfigurationSpec) field.ErrorList {
	var errs field.ErrorList
	if s.Exempt != nil && s.Type != flowcontrolv1.PriorityLevelEnablementExempt {
		errs = append(errs, field.Forbidden(p.Child("exempt"), ""))
	}
	errs = append(errs, validatePart(p.Child("limited"), s.Limited != nil, s.Type == flowcontrolv1.PriorityLevelEnablementLimited)...)
	if s.Type == "" {
		errs = append(errs, field.Required(p.Child("type"), ""))
	}
	if s.Limited == nil {
		return errs
	}
	response, path := s.Limited.LimitResponse, p.Child("limited", "limitResponse")
	errs = append(errs, validatePart(path.Child("queuing"), response.Queuing != nil, response.Type == flowcontrolv1.LimitResponseTypeQueue)...)
	if response.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), ""))
	}
	return errs
}

// validatePart checks a part that a type needs, or that it forbids.
func validatePart(p *field.Path, present, needed bool) field.ErrorList {
	switch {
	case needed && !present:
		return field.ErrorList{field.Required(p, "")}
	case present && !needed:
		return field.ErrorList{field.Forbidden(p, "")}
	}
	return nil
}

// validateMandatoryLevel keeps the specs of the mandatory priority levels. Only
// the field exempt of the level of that name can change.
func validateMandatoryLevel(p *field.Path, l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		if l.Name != fixed.Name {
			continue
		}
		have, want, which := l.Spec, fixed.Spec, ""
		if l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			have.Exempt, want.Exempt, which = nil, nil, " except the 'spec.exempt' field"
		}
		if !equality.Semantic.DeepEqual(have, want) {
			return field.ErrorList{field.Invalid(p, validators.Shown(l.Spec), fmt.Sprintf("spec of '%s'%s must equal the fixed value", l.Name, which))}
		}
	}
	return nil
}

func validateShares(p *field.Path, shares, lendable *int32) field.ErrorList {
	var errs field.ErrorList
	if shares != nil && *shares < 0 {
		errs = append(errs, field.Invalid(p.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer"))
	}
	if lendable != nil && (*lendable < 0 || *lendable > 100) {
		errs = append(errs, field.Invalid(p.Child("lendablePercent"), *lendable, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(p *field.Path, l *flowcontrolv1.LimitedPriorityLevelConfiguration) field.ErrorList {
	errs := validateShares(p, l.NominalConcurrencyShares, l.LendablePercent)
	if b := l.BorrowingLimitPercent; b != nil && *b < 0 {
		errs = append(errs, field.Invalid(p.Child("borrowingLimitPercent"), *b, "if specified, must be a non-negative integer"))
	}
	const queue, reject = flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject
	response := p.Child("limitResponse")
	switch q := l.LimitResponse.Queuing; l.LimitResponse.Type {
	case queue:
		if q != nil {
			errs = append(errs, validateQueuing(response.Child("queuing"), q)...)
		}
	case reject, "": // see validateParts
	default:
		errs = append(errs, field.NotSupported(response.Child("type"), l.LimitResponse.Type, []flowcontrolv1.LimitResponseType{queue, reject}))
	}
	return errs
}

func validateQueuing(p *field.Path, q *flowcontrolv1.QueuingConfiguration) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(p.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	if q.Queues <= 0 {
		errs = append(errs, field.Invalid(p.Child("queues"), q.Queues, "must be positive"))
	} else if q.Queues > maxQueues {
		errs = append(errs, field.Invalid(p.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	hand := p.Child("handSize")
	switch entropy := shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)); {
	case q.HandSize <= 0:
		errs = append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	case entropy > shufflesharding.MaxHashBits:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf(
			"required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits)))
	}
	return errs
}
