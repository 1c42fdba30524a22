// Package declarative validates fields by the +k8s: tags of their types
// (KEP-5073). Errors have the order and the messages of upstream's generated
// validation. The checks come from k8s.io/apimachinery/pkg/api/validate.
//
// Values that an update does not change are not validated again. Each function
// takes the old value, which is nil on create and for a new item.
package declarative

import (
	"context"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Operation is a creation or an update.
type Operation = operation.Operation

// Create returns the operation of creating an object.
func Create() Operation { return Operation{Type: operation.Create} }

// Update returns the operation of replacing an object.
func Update() Operation { return Operation{Type: operation.Update} }

// Presence says whether a field must be set.
type Presence int

// The presences of +k8s:required, +k8s:optional and +k8s:forbidden.
const (
	Required Presence = iota
	Optional
	Forbidden
)

// If returns Optional if a feature is enabled, else Forbidden.
func If(enabled bool) Presence {
	if enabled {
		return Optional
	}
	return Forbidden
}

// Rule validates a value that is set.
type Rule[T any] = validate.ValidateFunc[*T]

// Of returns a part of value, or nil if value is nil.
func Of[S, F any](value *S, part func(*S) *F) *F {
	if value == nil {
		return nil
	}
	return part(value)
}

// Value validates a field that is unset when it is zero.
func Value[T comparable](op Operation, p *field.Path, value, old *T, presence Presence, rules ...Rule[T]) field.ErrorList {
	if kept(op, value, old) {
		return nil
	}
	var zero T
	return check(op, p, value, old, *value != zero, presence, rules)
}

// Pointer validates a field that is unset when it is nil.
func Pointer[T any](op Operation, p *field.Path, value, old *T, presence Presence, rules ...Rule[T]) field.ErrorList {
	if kept(op, value, old) {
		return nil
	}
	return check(op, p, value, old, value != nil, presence, rules)
}

func kept[T any](op Operation, value, old *T) bool {
	return op.Type == operation.Update && validate.SemanticDeepEqual(value, old)
}

func check[T any](op Operation, p *field.Path, value, old *T, present bool, presence Presence, rules []Rule[T]) field.ErrorList {
	switch {
	case !present && presence == Required:
		return field.ErrorList{field.Required(p, "")}
	case present && presence == Forbidden:
		return field.ErrorList{field.Forbidden(p, "")}
	case !present:
		return nil
	}
	var errs field.ErrorList
	for _, rule := range rules {
		errs = append(errs, rule(context.Background(), op, p, value, old)...)
	}
	return errs
}

// Immutable refuses every change of a field. If it returns errors, the other
// checks of the field need not run.
func Immutable[T any](op Operation, p *field.Path, value, old *T) field.ErrorList {
	if kept(op, value, old) {
		return nil
	}
	return validate.Immutable(context.Background(), op, p, value, old)
}

// First returns the errors of the first check that finds any.
func First(checks ...func() field.ErrorList) field.ErrorList {
	for _, errs := range checks {
		if found := errs(); len(found) > 0 {
			return found
		}
	}
	return nil
}

// Only applies update constraints (no set, unset or modify) to a pointer field.
func Only[T any](op Operation, p *field.Path, value, old *T, constraints ...validate.UpdateConstraint) field.ErrorList {
	if kept(op, value, old) {
		return nil
	}
	return validate.UpdatePointer(context.Background(), op, p, value, old, constraints...)
}

// List validates a list of keyed items: at most most items, unique keys, and
// each item against the old one with the same key.
func List[T any](op Operation, p *field.Path, items, old []T, key func(*T) string, most int, each func(op Operation, p *field.Path, item, old *T) field.ErrorList) field.ErrorList {
	if op.Type == operation.Update && validate.SemanticDeepEqual(items, old) {
		return nil
	}
	ctx := context.Background()
	if errs := validate.MaxItems(ctx, op, p, items, old, most); len(errs) > 0 {
		return errs
	}
	same := func(a, b *T) bool { return key(a) == key(b) }
	alike := func(a, b *T) bool { return validate.SemanticDeepEqual(a, b) }
	errs := validate.EachValSliceVal(ctx, op, p, items, old, same, alike,
		func(_ context.Context, op Operation, p *field.Path, item, old *T) field.ErrorList {
			return each(op, p, item, old)
		})
	return append(errs, validate.ValSliceUnique(ctx, op, p, items, old, same)...)
}

// FixedKeys refuses added and removed items.
func FixedKeys[T any](op Operation, p *field.Path, items, old []T, key func(*T) string) field.ErrorList {
	same := func(a, b *T) bool { return key(a) == key(b) }
	return validate.ValSliceUpdate(context.Background(), op, p, items, old, same, validate.NoAddItem, validate.NoRemoveItem)
}

// OneOf is the rule of +k8s:enum.
func OneOf[T ~string](allowed ...T) Rule[T] {
	values := sets.New(allowed...)
	return func(ctx context.Context, op Operation, p *field.Path, value, old *T) field.ErrorList {
		return validate.Enum(ctx, op, p, value, old, values, nil)
	}
}

// Number is a type with a minimum and a maximum.
type Number interface{ ~int32 | ~int64 }

// Min is the rule of +k8s:minimum.
func Min[T Number](least T) Rule[T] {
	return func(ctx context.Context, op Operation, p *field.Path, value, old *T) field.ErrorList {
		return validate.Minimum(ctx, op, p, value, old, least)
	}
}

// Max is the rule of +k8s:maximum.
func Max[T Number](most T) Rule[T] {
	return func(ctx context.Context, op Operation, p *field.Path, value, old *T) field.ErrorList {
		return validate.Maximum(ctx, op, p, value, old, most)
	}
}

// Union requires exactly one member of a struct to be set.
func Union[S any](op Operation, p *field.Path, value, old *S, members []string, set ...func(*S) bool) field.ErrorList {
	var all []validate.UnionMember
	for _, name := range members {
		all = append(all, validate.NewUnionMember(name))
	}
	var isSet []validate.ExtractorFn[*S, bool]
	for _, member := range set {
		isSet = append(isSet, func(s *S) bool { return s != nil && member(s) })
	}
	return validate.Union(context.Background(), op, p, value, old, validate.NewUnionMembership(all...), isSet...)
}

// MaxLength is the rule of +k8s:maxLength, in characters.
func MaxLength(most int) Rule[string] {
	return func(ctx context.Context, op Operation, p *field.Path, value, old *string) field.ErrorList {
		return validate.MaxLength(ctx, op, p, value, old, most)
	}
}

// MaxBytes is the rule of +k8s:maxBytes.
func MaxBytes(most int) Rule[string] {
	return func(ctx context.Context, op Operation, p *field.Path, value, old *string) field.ErrorList {
		return validate.MaxBytes(ctx, op, p, value, old, most)
	}
}
