package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
	"github.com/coracle-io/coracle/internal/resource/validators"
)

// defaultPodExpiration is the lifetime of a pod's certificate in seconds.
const defaultPodExpiration = 24 * 3600

// PodCertificateRequests is the resource podcertificaterequests (KEP-4317).
func PodCertificateRequests() *resource.Resource {
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return resource.Define(resource.Definition[certificatesv1.PodCertificateRequest, *certificatesv1.PodCertificateRequest]{
		GroupVersion: certificatesv1.SchemeGroupVersion,
		Names:        resource.Names{Kind: "PodCertificateRequest", Plural: "podcertificaterequests"},
		Gate:         feature.PodCertificateRequest,
		Default: func(r *certificatesv1.PodCertificateRequest) {
			defaults.Nil(&r.Spec.MaxExpirationSeconds, defaultPodExpiration)
		},
		Status: resource.Status[*certificatesv1.PodCertificateRequest]{
			Copy:          func(r, from *certificatesv1.PodCertificateRequest) { r.Status = from.Status },
			Validate:      validatePodRequestStatus,
			KeepsMetadata: true,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*certificatesv1.PodCertificateRequest]{
			ForbidUnconditionalUpdate: true,
			Validate:                  validatePodRequest,
			ValidateUpdate: func(_ *resource.RequestContext, r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
				if equality.Semantic.DeepEqual(r.Spec, old.Spec) {
					return nil
				}
				return field.ErrorList{field.Invalid(field.NewPath("spec"), validators.Shown(r.Spec), "field is immutable")}
			},
		},
		Table: resource.Table[*certificatesv1.PodCertificateRequest]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("PodName", "string", doc["podName"]),
				resource.Column("ServiceAccountName", "string", doc["serviceAccountName"]),
				resource.Column("NodeName", "string", doc["nodeName"]),
				resource.Column("SignerName", "string", doc["signerName"]),
				resource.Column("State", "string", certificatesv1.PodCertificateRequestStatus{}.SwaggerDoc()["conditions"]),
				resource.AgeColumn(),
			},
			Row: func(r *certificatesv1.PodCertificateRequest, now time.Time) []any {
				state := "Pending"
				for _, condition := range r.Status.Conditions {
					if condition.Status == metav1.ConditionTrue {
						state = condition.Type
					}
				}
				return []any{
					r.Name, r.Spec.PodName, r.Spec.ServiceAccountName, string(r.Spec.NodeName), r.Spec.SignerName, state,
					resource.Age(r.CreationTimestamp, now),
				}
			},
		},
		FieldSelectors: resource.FieldSelectors[*certificatesv1.PodCertificateRequest]{
			SelectableFields: func(r *certificatesv1.PodCertificateRequest) fields.Set {
				return fields.Set{
					"spec.signerName": r.Spec.SignerName, "spec.podName": r.Spec.PodName, "spec.nodeName": string(r.Spec.NodeName),
				}
			},
			Fields: []string{"spec.nodeName", "spec.podName", "spec.signerName"},
		},
	})
}
