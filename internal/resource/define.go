package resource

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// AllVerbs returns the verbs of an ordinary stored resource, in discovery's order.
func AllVerbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// UpdateVerbs returns the verbs of a subresource that is read and updated.
func UpdateVerbs() []string { return []string{"get", "patch", "update"} }

// Define compiles a Definition: every function of the result is set.
func Define[S any, T ObjectPointer[S]](d Definition[S, T]) *Resource {
	r := &Resource{
		Group:                    d.GroupVersion.Group,
		Plural:                   d.Plural,
		Singular:                 d.Singular,
		Kind:                     d.Kind,
		ShortNames:               d.ShortNames,
		Categories:               d.Categories,
		Namespaced:               !d.Cluster,
		IsNamespace:              d.IsNamespace,
		Verbs:                    d.Verbs,
		Action:                   d.Action,
		Gate:                     d.Gate,
		StoragePath:              d.StoragePath,
		StoredAsJSON:             d.StoredAsJSON,
		TTL:                      d.TTL,
		ValidateName:             d.ValidateName,
		ForbidDelete:             d.ForbidDelete,
		AllowCreateOnUpdate:      d.AllowCreateOnUpdate,
		AllowUnconditionalUpdate: !d.ForbidUnconditionalUpdate,
		DefaultPropagation:       d.DefaultPropagation,
		ReturnDeletedObject:      d.ReturnDeletedObject,
		Columns:                  d.Columns,
		Fields:                   d.Fields,
		Indexed:                  d.Indexed,
	}
	if r.Singular == "" {
		r.Singular = strings.ToLower(d.Kind)
	}
	if r.StoragePath == "" {
		r.StoragePath = d.Plural
	}
	if r.Verbs == nil {
		r.Verbs = AllVerbs()
	}
	if r.ValidateName == nil {
		r.ValidateName = validation.NameIsDNSSubdomain
	}
	if r.DefaultPropagation == "" {
		r.DefaultPropagation = metav1.DeletePropagationBackground
	}

	r.Versions = d.versions()
	r.PrepareForCreate = d.prepareForCreate
	r.PrepareForUpdate = d.prepareForUpdate
	validate := d.validator(r.Namespaced, r.ValidateName)
	r.Validate = func(req *Request, obj Object) field.ErrorList { return validate(req, obj.(T)) }
	r.ValidateUpdate = d.updateValidator(validate)
	r.Warnings = d.warnings
	d.defineDeletion(r)
	d.defineTable(r)
	d.defineSelection(r)

	for _, s := range d.Subresources {
		r.Subresources = append(r.Subresources, s.compile())
	}
	if d.CopyStatus != nil {
		r.Subresources = append(r.Subresources, d.statusSubresource())
	}
	return r
}

func (d *Definition[S, T]) defineDeletion(r *Resource) {
	if d.GracePeriod != nil {
		r.GracePeriod = func(obj Object, options *metav1.DeleteOptions) int64 { return d.GracePeriod(obj.(T), options) }
	}
	if d.BeforeDelete != nil {
		r.BeforeDelete = func(obj Object, options *metav1.DeleteOptions, now time.Time) (Deletion, bool) {
			return d.BeforeDelete(obj.(T), options, now)
		}
	}
	if d.HasFinalizers != nil {
		r.HasFinalizers = func(obj Object) bool { return d.HasFinalizers(obj.(T)) }
	}
}

func (d *Definition[S, T]) defineSelection(r *Resource) {
	switch {
	case d.SelectableField != nil:
		r.SelectableField = func(obj Object, field string) string { return d.SelectableField(obj.(T), field) }
		r.SelectableFields = func(obj Object) fields.Set {
			set := make(fields.Set, len(d.Fields))
			for _, field := range d.Fields {
				set[field] = d.SelectableField(obj.(T), field)
			}
			return set
		}
	case d.SelectableFields != nil:
		r.SelectableFields = func(obj Object) fields.Set { return d.SelectableFields(obj.(T)) }
	default:
		r.SelectableFields = func(Object) fields.Set { return nil }
	}
}

func (d *Definition[S, T]) versions() []Version {
	identity := func(obj Object) Object { return obj }
	hub := Version{
		GroupVersion: d.GroupVersion,
		Hub:          true,
		New:          func() Object { return newObject[S, T](d.GroupVersion.WithKind(d.Kind)) },
		Default:      func(Object) {},
		ToHub:        identity,
		FromHub:      identity,
		Deprecated:   deprecationOf(newObject[S, T](d.GroupVersion.WithKind(d.Kind))),
	}
	if d.Default != nil {
		hub.Default = func(obj Object) { d.Default(obj.(T)) }
	}
	if d.PreferOther {
		return append(append([]Version(nil), d.Other...), hub)
	}
	return append([]Version{hub}, d.Other...)
}

// OtherVersion describes a served version that is not the hub. Conversions
// get a copy that they may take apart; TypeMeta is set for them.
func OtherVersion[V any, P ObjectPointer[V], H any, HP ObjectPointer[H]](
	of, hub schema.GroupVersionKind, defaults func(P), toHub func(P) HP, fromHub func(HP) P,
) Version {
	v := Version{
		GroupVersion: of.GroupVersion(),
		New:          func() Object { return newObject[V, P](of) },
		Default:      func(Object) {},
		Deprecated:   deprecationOf(newObject[V, P](of)),
		ToHub: func(obj Object) Object {
			converted := toHub(obj.DeepCopyObject().(P))
			converted.GetObjectKind().SetGroupVersionKind(hub)
			return converted
		},
		FromHub: func(obj Object) Object {
			converted := fromHub(obj.DeepCopyObject().(HP))
			converted.GetObjectKind().SetGroupVersionKind(of)
			return converted
		},
	}
	if defaults != nil {
		v.Default = func(obj Object) { defaults(obj.(P)) }
	}
	return v
}

func newObject[S any, T ObjectPointer[S]](kind schema.GroupVersionKind) T {
	obj := T(new(S))
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj
}

func (d *Definition[S, T]) prepareForCreate(r *Request, o Object) {
	obj := o.(T)
	if d.CopyStatus != nil && !d.CreateWithStatus {
		d.CopyStatus(obj, T(new(S)))
	}
	if d.Spec != nil {
		obj.SetGeneration(1)
	}
	if d.PrepareForCreate != nil {
		d.PrepareForCreate(r, obj)
	}
}

func (d *Definition[S, T]) prepareForUpdate(r *Request, o, p Object) {
	obj, old := o.(T), p.(T)
	if d.CopyStatus != nil {
		d.CopyStatus(obj, old)
	}
	if d.PrepareForUpdate != nil {
		d.PrepareForUpdate(r, obj, old)
	}
	d.raiseGeneration(obj, old)
}

func (d *Definition[S, T]) raiseGeneration(obj, old T) {
	if d.Spec != nil && !Equal(d.Spec(obj), d.Spec(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func (d *Definition[S, T]) validator(namespaced bool, name func(string, bool) []string) func(*Request, T) field.ErrorList {
	return func(r *Request, obj T) field.ErrorList {
		validateMetadata := ValidateNamedMetadata
		if d.UnqualifiedFinalizers {
			validateMetadata = ValidateMetadata
		}
		errs := validateMetadata(obj, namespaced, name)
		if d.Validate != nil {
			errs = append(errs, d.Validate(r, obj)...)
		}
		return errs
	}
}

func (d *Definition[S, T]) updateValidator(validate func(*Request, T) field.ErrorList) func(*Request, Object, Object) field.ErrorList {
	return func(r *Request, o, p Object) field.ErrorList {
		obj, old := o.(T), p.(T)
		var errs field.ErrorList
		if !d.UpdateValidatesAlone {
			errs = validate(r, obj)
		}
		if !d.MetadataUpdateUnchecked {
			errs = append(errs, d.validateMetadataUpdate(obj, old)...)
		}
		if d.ValidateUpdate != nil {
			errs = append(errs, d.ValidateUpdate(r, obj, old)...)
		}
		return errs
	}
}

func (d *Definition[S, T]) validateMetadataUpdate(obj, old T) field.ErrorList {
	errs := ValidateMetadataUpdate(obj, old)
	if !d.UnqualifiedFinalizers {
		errs = append(errs, validateFinalizerDomains(obj)...)
	}
	return errs
}

func (d *Definition[S, T]) warnings(r *Request, obj, old Object) []string {
	if d.Warnings == nil {
		return nil
	}
	if old == nil {
		return d.Warnings(r, obj.(T), nil)
	}
	return d.Warnings(r, obj.(T), old.(T))
}

func (d *Definition[S, T]) defineTable(r *Resource) {
	switch {
	case d.Columns == nil:
		r.Columns = []metav1.TableColumnDefinition{NameColumn(), createdAtColumn()}
		r.Row = func(obj Object, _ time.Time) []any {
			return []any{obj.GetName(), obj.GetCreationTimestamp().Time.UTC().Format(time.RFC3339)}
		}
	case d.Row == nil:
		r.Row = func(obj Object, now time.Time) []any {
			return []any{obj.GetName(), Age(obj.GetCreationTimestamp(), now)}
		}
	default:
		r.Row = func(obj Object, now time.Time) []any { return d.Row(obj.(T), now) }
	}
}

// statusSubresource replaces in the old object only its status and what of
// its metadata may change with it.
func (d *Definition[S, T]) statusSubresource() Subresource {
	return Subresource{
		Name:  "status",
		Verbs: UpdateVerbs(),
		PrepareForUpdate: func(r *Request, o, p Object) {
			obj, old := o.(T), p.(T)
			next := old.DeepCopyObject().(T)
			d.CopyStatus(next, obj)
			if d.StatusKeepsMetadata {
				metav1.ResetObjectMetaForStatus(obj, old)
			}
			*metadataOf(next) = *metadataOf(obj)
			*obj = *next
			if d.PrepareStatus != nil {
				d.PrepareStatus(r, obj, old)
			}
		},
		ValidateUpdate: func(r *Request, o, p Object) field.ErrorList {
			obj, old := o.(T), p.(T)
			errs := d.validateMetadataUpdate(obj, old)
			if d.ValidateStatus != nil {
				errs = append(errs, d.ValidateStatus(r, obj, old)...)
			}
			return errs
		},
	}
}

func (s *SubresourceDefinition[S, T]) compile() Subresource {
	sub := Subresource{Name: s.Name, Kind: s.Kind, Verbs: s.Verbs, Action: s.Action}
	if sub.Verbs == nil {
		sub.Verbs = UpdateVerbs()
	}
	if s.PrepareForUpdate != nil {
		sub.PrepareForUpdate = func(r *Request, obj, old Object) { s.PrepareForUpdate(r, obj.(T), old.(T)) }
		sub.ValidateUpdate = func(r *Request, o, p Object) field.ErrorList {
			obj, old := o.(T), p.(T)
			errs := ValidateMetadataUpdate(obj, old)
			if s.ValidateUpdate != nil {
				errs = append(errs, s.ValidateUpdate(r, obj, old)...)
			}
			return errs
		}
	}
	if s.Scale != nil {
		sub.Scale = &Scale{
			SpecReplicas:   func(obj Object) int32 { return s.Scale.SpecReplicas(obj.(T)) },
			StatusReplicas: func(obj Object) int32 { return s.Scale.StatusReplicas(obj.(T)) },
			Selector:       func(obj Object) string { return s.Scale.Selector(obj.(T)) },
			SetReplicas:    func(obj Object, replicas int32) { s.Scale.SetReplicas(obj.(T), replicas) },
		}
		if sub.Kind.Empty() {
			sub.Kind = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
		}
	}
	return sub
}
