package storage

import (
	"fmt"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/defaultclass"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/nodeselector"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// StorageClasses is the resource storageclasses.
func StorageClasses() *resource.Resource {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	return resource.Define(resource.Definition[storagev1.StorageClass, *storagev1.StorageClass]{
		GroupVersion: storagev1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "StorageClass", Plural: "storageclasses", ShortNames: []string{"sc"}},
		Cluster:      true,
		Default: func(c *storagev1.StorageClass) {
			defaults.Nil(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			defaults.Nil(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		},
		Strategy: resource.Strategy[*storagev1.StorageClass]{
			Validate:       validateStorageClass,
			ValidateUpdate: validateStorageClassUpdate,
			Warnings:       storageClassWarnings,
		},
		Table: resource.Table[*storagev1.StorageClass]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Provisioner", "string", doc["provisioner"]),
				resource.Column("ReclaimPolicy", "string", doc["reclaimPolicy"]),
				resource.Column("VolumeBindingMode", "string", doc["volumeBindingMode"]),
				resource.Column("AllowVolumeExpansion", "string", doc["allowVolumeExpansion"]),
				resource.AgeColumn(),
			},
			Row: storageClassRow,
			ListRow: func(list iter.Seq[*storagev1.StorageClass]) func(*storagev1.StorageClass, time.Time) []any {
				standard := defaultclass.Storage(list)
				return func(c *storagev1.StorageClass, now time.Time) []any {
					cells := storageClassRow(c, now)
					if c == standard {
						cells[0] = c.Name + " (default)"
					}
					return cells
				}
			},
		},
	})
}

// storageClassWarnings warns of deprecated node labels in topologies.
func storageClassWarnings(_ *resource.RequestContext, c, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i := range c.AllowedTopologies {
		at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions")
		for k, e := range c.AllowedTopologies[i].MatchLabelExpressions {
			if message, deprecated := nodeselector.DeprecatedLabel(e.Key); deprecated {
				warnings = append(warnings, fmt.Sprintf("%s: %s", at.Index(k).Child("key"), message))
			}
		}
	}
	return warnings
}

// storageClassRow returns the cells of a class. Only lists show which class is
// the default: of several that are marked, it is the newest.
func storageClassRow(c *storagev1.StorageClass, now time.Time) []any {
	return []any{
		c.Name, c.Provisioner, string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
		string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate)), ptr.Deref(c.AllowVolumeExpansion, false),
		resource.Age(c.CreationTimestamp, now),
	}
}

func validateStorageClass(_ *resource.RequestContext, c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(field.NewPath("provisioner"), c.Provisioner)
	errs = append(errs, validateParameters(field.NewPath("parameters"), c.Parameters, false)...)
	if c.ReclaimPolicy != nil && *c.ReclaimPolicy != "" {
		errs = append(errs, validators.OneOf(field.NewPath("reclaimPolicy"), *c.ReclaimPolicy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	if c.VolumeBindingMode == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	} else {
		errs = append(errs, validators.OneOf(field.NewPath("volumeBindingMode"), *c.VolumeBindingMode,
			storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	return append(errs, validateTopologies(field.NewPath("allowedTopologies"), c.AllowedTopologies)...)
}

// validateTopologies requires terms that differ. Upstream reports an empty
// term once for each term of the list; this stops after a thousand.
func validateTopologies(p *field.Path, terms []corev1.TopologySelectorTerm) field.ErrorList {
	var errs field.ErrorList
	const most = 1000
	seen := map[string]int{}
	for i := range terms {
		expressions := p.Index(i).Child("matchLabelExpressions")
		selected, problems := validateTopologyTerm(expressions, terms[i].MatchLabelExpressions)
		errs = append(errs, problems...)
		text := fmt.Sprintf("%q", selected) // sorts the keys
		same := seen[text]
		if len(selected) == 0 {
			same += len(terms)
		}
		for range min(same, most-len(errs)) {
			errs = append(errs, field.Duplicate(expressions, ""))
		}
		seen[text]++
	}
	return errs
}

// validateTopologyTerm checks a term and returns the values of each key.
func validateTopologyTerm(p *field.Path, expressions []corev1.TopologySelectorLabelRequirement) (map[string]sets.Set[string], field.ErrorList) {
	var errs field.ErrorList
	selected := map[string]sets.Set[string]{}
	for i, e := range expressions {
		at, values := p.Index(i), sets.New[string]()
		if len(e.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"), ""))
		}
		for n, value := range e.Values {
			if values.Has(value) {
				errs = append(errs, field.Duplicate(at.Child("values").Index(n), value))
			}
			values.Insert(value)
		}
		errs = append(errs, validators.Problems(at.Child("key"), e.Key, utilvalidation.IsQualifiedName(e.Key))...)
		if _, twice := selected[e.Key]; twice {
			errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
		}
		selected[e.Key] = values
	}
	return selected, errs
}

func validateStorageClassUpdate(_ *resource.RequestContext, c, old *storagev1.StorageClass) field.ErrorList {
	errs := validators.Unchanged(field.NewPath("provisioner"), c.Provisioner, old.Provisioner)
	errs = append(errs, validators.Unchanged(field.NewPath("parameters"), c.Parameters, old.Parameters)...)
	errs = append(errs, validators.Unchanged(field.NewPath("reclaimPolicy"), c.ReclaimPolicy, old.ReclaimPolicy)...)
	return append(errs, validators.Unchanged(field.NewPath("volumeBindingMode"), c.VolumeBindingMode, old.VolumeBindingMode)...)
}
