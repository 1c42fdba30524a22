// Package apiserverinternal defines the resources of the group
// internal.apiserver.k8s.io.
package apiserverinternal

import (
	"fmt"
	"strings"
	"time"

	internalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// StorageVersions is the resource storageversions (KEP-2339), which is not
// served by default.
func StorageVersions() *resource.Resource {
	r := resource.Define(resource.Definition[internalv1alpha1.StorageVersion, *internalv1alpha1.StorageVersion]{
		GroupVersion: internalv1alpha1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "StorageVersion", Plural: "storageversions"},
		Cluster:      true,
		Gate:         feature.StorageVersionAPI,
		Status: resource.Status[*internalv1alpha1.StorageVersion]{
			Copy:          func(v, from *internalv1alpha1.StorageVersion) { v.Status = from.Status },
			KeepsMetadata: true,
			Validate: func(_ *resource.RequestContext, v, _ *internalv1alpha1.StorageVersion) field.ErrorList {
				return validateStatus(field.NewPath("status"), &v.Status)
			},
		},
		Strategy: resource.Strategy[*internalv1alpha1.StorageVersion]{
			ForbidUnconditionalUpdate: true,
			ValidateName:              validateName,
		},
		Table: resource.Table[*internalv1alpha1.StorageVersion]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("CommonEncodingVersion", "string", internalv1alpha1.StorageVersionStatus{}.SwaggerDoc()["commonEncodingVersion"]),
				resource.Column("StorageVersions", "string", internalv1alpha1.StorageVersionStatus{}.SwaggerDoc()["storageVersions"]),
				resource.AgeColumn(),
			},
			Row: func(v *internalv1alpha1.StorageVersion, now time.Time) []any {
				return []any{v.Name, ptr.Deref(v.Status.CommonEncodingVersion, "<unset>"), reported(v.Status.StorageVersions), resource.Age(v.CreationTimestamp, now)}
			},
		},
	})
	r.Priorities = resource.Priorities{Group: 16000}
	return r
}

// reported returns the names of the first three servers and the versions that
// they write.
func reported(versions []internalv1alpha1.ServerStorageVersion) string {
	const most = 3
	var list []string
	for i := range versions[:min(most, len(versions))] {
		list = append(list, versions[i].APIServerID+"="+versions[i].EncodingVersion)
	}
	text := strings.Join(list, ",")
	if more := len(versions) - most; more > 0 {
		return fmt.Sprintf("%s + %d more...", text, more)
	}
	return text
}
