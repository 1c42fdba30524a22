package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
	"github.com/coracle-io/coracle/internal/resource/rule"
)

// defaultPodExpiration is how long a pod's certificate lives, in seconds.
const defaultPodExpiration = 24 * 3600

// PodCertificateRequests is the resource podcertificaterequests (KEP-4317).
func PodCertificateRequests() *resource.Resource {
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return resource.Define(resource.Definition[certificatesv1.PodCertificateRequest, *certificatesv1.PodCertificateRequest]{
		GroupVersion: certificatesv1.SchemeGroupVersion,
		Kind:         "PodCertificateRequest",
		Plural:       "podcertificaterequests",
		Gate:         "PodCertificateRequest",
		Default: func(r *certificatesv1.PodCertificateRequest) {
			fill.Nil(&r.Spec.MaxExpirationSeconds, defaultPodExpiration)
		},
		CopyStatus:           func(r, from *certificatesv1.PodCertificateRequest) { r.Status = from.Status },
		Validate:             validatePodRequest,
		ValidateStatus:       validatePodRequestStatus,
		StatusKeepsMetadata:  true,
		UpdateValidatesAlone: true,
		ValidateUpdate: func(_ *resource.Request, r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
			if equality.Semantic.DeepEqual(r.Spec, old.Spec) {
				return nil
			}
			return field.ErrorList{field.Invalid(field.NewPath("spec"), rule.Shown(r.Spec), "field is immutable")}
		},
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
		SelectableFields: func(r *certificatesv1.PodCertificateRequest) fields.Set {
			return fields.Set{
				"spec.signerName": r.Spec.SignerName, "spec.podName": r.Spec.PodName, "spec.nodeName": string(r.Spec.NodeName),
			}
		},
		Fields: []string{"spec.nodeName", "spec.podName", "spec.signerName"},
	})
}
