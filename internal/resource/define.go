package resource

import (
	"iter"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// allVerbs returns the verbs of a stored resource, in the order of discovery.
func allVerbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// updateVerbs returns the verbs of a subresource that is read and updated.
func updateVerbs() []string { return []string{"get", "patch", "update"} }

// DefineReview returns the resource of a kind that the API server answers and
// does not store.
func DefineReview[S any, T ObjectPointer[S]](version schema.GroupVersion, kind, plural string, cluster bool) *Resource {
	return Define(Definition[S, T]{
		GroupVersion: version,
		Names:        Names{Kind: kind, Plural: plural},
		Cluster:      cluster,
		Verbs:        []string{"create"},
		Action:       Review,
	})
}

// Define compiles a Definition to a Resource with every function set.
func Define[S any, T ObjectPointer[S]](d Definition[S, T]) *Resource {
	r := &Resource{
		Group:          d.GroupVersion.Group,
		Names:          d.Names,
		Namespaced:     !d.Cluster,
		IsNamespace:    d.IsNamespace,
		Verbs:          d.Verbs,
		Versions:       d.versions(),
		Gate:           d.Gate,
		Action:         d.Action,
		Storage:        d.Storage,
		Strategy:       d.strategy(),
		DeleteStrategy: d.deleteStrategy(),
		Table:          d.table(),
		FieldSelectors: d.fieldSelectors(),
	}
	if r.Singular == "" {
		r.Singular = strings.ToLower(d.Names.Kind)
	}
	if r.Storage.Path == "" {
		r.Storage.Path = d.Names.Plural
	}
	if r.Verbs == nil {
		r.Verbs = allVerbs()
	}
	for _, s := range d.Subresources {
		r.Subresources = append(r.Subresources, s.compile())
	}
	if d.Status.Copy != nil {
		r.Subresources = append(r.Subresources, d.statusSubresource())
	}
	return r
}

func (d *Definition[S, T]) strategy() Strategy[Object] {
	s := Strategy[Object]{
		PrepareForCreate:          d.prepareForCreate,
		PrepareForUpdate:          d.prepareForUpdate,
		Warnings:                  d.warnings,
		ValidateName:              d.Strategy.ValidateName,
		ForbidCreate:              d.Strategy.ForbidCreate,
		AllowCreateOnUpdate:       d.Strategy.AllowCreateOnUpdate,
		ForbidUnconditionalUpdate: d.Strategy.ForbidUnconditionalUpdate,
		UnconditionalVersions:     d.Strategy.UnconditionalVersions,
	}
	if s.ValidateName == nil {
		s.ValidateName = validation.NameIsDNSSubdomain
	}
	validate := d.validator(s.ValidateName)
	s.Validate = func(r *RequestContext, obj Object) field.ErrorList { return validate(r, obj.(T)) }
	s.ValidateUpdate = d.updateValidator(validate)
	return s
}

func (d *Definition[S, T]) deleteStrategy() DeleteStrategy[Object] {
	s := DeleteStrategy[Object]{
		ForbidDelete:        d.DeleteStrategy.ForbidDelete,
		DefaultPropagation:  d.DeleteStrategy.DefaultPropagation,
		ReturnDeletedObject: d.DeleteStrategy.ReturnDeletedObject,
	}
	if s.DefaultPropagation == "" {
		s.DefaultPropagation = metav1.DeletePropagationBackground
	}
	if d.DeleteStrategy.GracePeriod != nil {
		s.GracePeriod = func(obj Object, options *metav1.DeleteOptions) int64 {
			return d.DeleteStrategy.GracePeriod(obj.(T), options)
		}
	}
	if d.DeleteStrategy.BeforeDelete != nil {
		s.BeforeDelete = func(obj Object, options *metav1.DeleteOptions, now time.Time) (Deletion, bool) {
			return d.DeleteStrategy.BeforeDelete(obj.(T), options, now)
		}
	}
	if d.DeleteStrategy.HasFinalizers != nil {
		s.HasFinalizers = func(obj Object) bool { return d.DeleteStrategy.HasFinalizers(obj.(T)) }
	}
	return s
}

func (d *Definition[S, T]) fieldSelectors() FieldSelectors[Object] {
	s := FieldSelectors[Object]{Fields: d.FieldSelectors.Fields, Indexed: d.FieldSelectors.Indexed}
	switch {
	case d.FieldSelectors.SelectableField != nil:
		s.SelectableField = func(obj Object, field string) string { return d.FieldSelectors.SelectableField(obj.(T), field) }
		s.SelectableFields = func(obj Object) fields.Set {
			set := make(fields.Set, len(d.FieldSelectors.Fields))
			for _, field := range d.FieldSelectors.Fields {
				set[field] = d.FieldSelectors.SelectableField(obj.(T), field)
			}
			return set
		}
	case d.FieldSelectors.SelectableFields != nil:
		s.SelectableFields = func(obj Object) fields.Set { return d.FieldSelectors.SelectableFields(obj.(T)) }
	default:
		s.SelectableFields = func(Object) fields.Set { return nil }
	}
	return s
}

func (d *Definition[S, T]) versions() []Version {
	identity := func(obj Object) Object { return obj }
	hub := Version{
		GroupVersion: d.GroupVersion,
		Hub:          true,
		New:          func() Object { return newObject[S, T](d.GroupVersion.WithKind(d.Names.Kind)) },
		Default:      func(Object) {},
		ToHub:        identity,
		FromHub:      identity,
		Deprecated:   deprecationOf(newObject[S, T](d.GroupVersion.WithKind(d.Names.Kind))),
	}
	if d.Default != nil {
		hub.Default = func(obj Object) { d.Default(obj.(T)) }
	}
	if d.Undecodable != nil {
		hub.Undecodable = func(o Object) error {
			if obj, ok := o.(T); ok {
				return d.Undecodable(obj)
			}
			return nil
		}
	}
	return append([]Version{hub}, d.Other...)
}

// OtherVersion describes a served version that is not the hub. toHub and
// fromHub get a copy that they may change or reuse. The caller sets TypeMeta
// of what they return.
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

func (d *Definition[S, T]) prepareForCreate(r *RequestContext, o Object) {
	obj := o.(T)
	if d.Status.Copy != nil && !d.Status.SetOnCreate {
		d.Status.Copy(obj, T(new(S)))
	}
	if d.Spec != nil {
		obj.SetGeneration(1)
	}
	if d.Strategy.PrepareForCreate != nil {
		d.Strategy.PrepareForCreate(r, obj)
	}
}

func (d *Definition[S, T]) prepareForUpdate(r *RequestContext, o, p Object) {
	obj, old := o.(T), p.(T)
	if d.Status.Copy != nil {
		d.Status.Copy(obj, old)
	}
	if d.Strategy.PrepareForUpdate != nil {
		d.Strategy.PrepareForUpdate(r, obj, old)
	}
	d.incrementGeneration(obj, old)
}

func (d *Definition[S, T]) incrementGeneration(obj, old T) {
	if d.Spec != nil && !Equal(d.Spec(obj), d.Spec(old)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func (d *Definition[S, T]) validator(name func(string, bool) []string) func(*RequestContext, T) field.ErrorList {
	return func(r *RequestContext, obj T) field.ErrorList {
		validateMetadata := ValidateNamedMetadata
		if d.UnqualifiedFinalizers {
			validateMetadata = ValidateMetadata
		}
		errs := validateMetadata(obj, !d.Cluster, name)
		if d.Strategy.Validate != nil {
			errs = append(errs, d.Strategy.Validate(r, obj)...)
		}
		return errs
	}
}

func (d *Definition[S, T]) updateValidator(validate func(*RequestContext, T) field.ErrorList) func(*RequestContext, Object, Object) field.ErrorList {
	return func(r *RequestContext, o, p Object) field.ErrorList {
		obj, old := o.(T), p.(T)
		var errs field.ErrorList
		if !d.UpdateValidatesAlone {
			errs = validate(r, obj)
		}
		if !d.MetadataUpdateUnchecked {
			errs = append(errs, d.validateMetadataUpdate(obj, old)...)
		}
		if d.Strategy.ValidateUpdate != nil {
			errs = append(errs, d.Strategy.ValidateUpdate(r, obj, old)...)
		}
		return errs
	}
}

func (d *Definition[S, T]) validateMetadataUpdate(obj, old T) field.ErrorList {
	errs := validateMetadataUpdate(obj, old)
	if !d.UnqualifiedFinalizers {
		errs = append(errs, validateFinalizerDomains(obj)...)
	}
	return errs
}

func (d *Definition[S, T]) warnings(r *RequestContext, obj, old Object) []string {
	if d.Strategy.Warnings == nil {
		return nil
	}
	if old == nil {
		return d.Strategy.Warnings(r, obj.(T), nil)
	}
	return d.Strategy.Warnings(r, obj.(T), old.(T))
}

func (d *Definition[S, T]) table() Table[Object] {
	switch {
	case d.Table.Columns == nil:
		return Table[Object]{
			Columns: []metav1.TableColumnDefinition{NameColumn(), CreatedAtColumn()},
			Row: func(obj Object, _ time.Time) []any {
				return []any{obj.GetName(), obj.GetCreationTimestamp().Time.UTC().Format(time.RFC3339)}
			},
		}
	case d.Table.Row == nil:
		return Table[Object]{Columns: d.Table.Columns, Row: func(obj Object, now time.Time) []any {
			return []any{obj.GetName(), Age(obj.GetCreationTimestamp(), now)}
		}}
	}
	t := Table[Object]{Columns: d.Table.Columns, Row: func(obj Object, now time.Time) []any { return d.Table.Row(obj.(T), now) }}
	if d.Table.ListRow != nil {
		t.ListRow = d.listRow
	}
	if d.Table.Conditions != nil {
		t.Conditions = func(obj Object) []metav1.TableRowCondition { return d.Table.Conditions(obj.(T)) }
	}
	return t
}

func (d *Definition[S, T]) listRow(list iter.Seq[Object]) func(Object, time.Time) []any {
	row := d.Table.ListRow(func(yield func(T) bool) {
		for obj := range list {
			if !yield(obj.(T)) {
				return
			}
		}
	})
	return func(obj Object, now time.Time) []any { return row(obj.(T), now) }
}

// statusSubresource returns the endpoint that updates only the status and the
// metadata that may change with it.
func (d *Definition[S, T]) statusSubresource() Subresource {
	return Subresource{
		Name:  "status",
		Verbs: updateVerbs(),
		PrepareForUpdate: func(r *RequestContext, o, p Object) {
			obj, old := o.(T), p.(T)
			next := old.DeepCopyObject().(T)
			d.Status.Copy(next, obj)
			if d.Status.KeepsMetadata {
				metav1.ResetObjectMetaForStatus(obj, old)
			}
			*metadataOf(next) = *metadataOf(obj)
			*obj = *next
			if d.Status.Prepare != nil {
				d.Status.Prepare(r, obj, old)
			}
		},
		ValidateUpdate: func(r *RequestContext, o, p Object) field.ErrorList {
			obj, old := o.(T), p.(T)
			errs := d.validateMetadataUpdate(obj, old)
			if d.Status.Validate != nil {
				errs = append(errs, d.Status.Validate(r, obj, old)...)
			}
			return errs
		},
		Warnings: func(obj Object) []string {
			if d.Status.Warnings == nil {
				return nil
			}
			return d.Status.Warnings(obj.(T))
		},
	}
}

func (s *SubresourceDefinition[S, T]) compile() Subresource {
	sub := Subresource{Name: s.Name, Kind: s.Kind, Verbs: s.Verbs, Action: s.Action}
	if sub.Verbs == nil {
		sub.Verbs = updateVerbs()
	}
	if s.PrepareForUpdate != nil {
		sub.PrepareForUpdate = func(r *RequestContext, obj, old Object) { s.PrepareForUpdate(r, obj.(T), old.(T)) }
		sub.ValidateUpdate = func(r *RequestContext, o, p Object) field.ErrorList {
			obj, old := o.(T), p.(T)
			errs := validateMetadataUpdate(obj, old)
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
