package apiregistration

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/fill"
)

// APIServices is the resource apiservices.
func APIServices() *resource.Resource {
	return resource.Define(resource.Definition[apiregistrationv1.APIService, *apiregistrationv1.APIService]{
		GroupVersion:              apiregistrationv1.SchemeGroupVersion,
		Kind:                      "APIService",
		Plural:                    "apiservices",
		UnqualifiedFinalizers:     true,
		StoredAsJSON:              true,
		ForbidUnconditionalUpdate: true,
		Categories:                []string{"api-extensions"},
		Cluster:                   true,
		StoragePath:               "apiregistration.k8s.io/apiservices",
		Default: func(s *apiregistrationv1.APIService) {
			if s.Spec.Service != nil {
				fill.Nil(&s.Spec.Service.Port, 443)
			}
		},
		CopyStatus:          func(s, from *apiregistrationv1.APIService) { s.Status = from.Status },
		PrepareForCreate:    settleLocal,
		PrepareForUpdate:    func(r *resource.Request, s, _ *apiregistrationv1.APIService) { settleLocal(r, s) },
		Validate:            validateAPIService,
		ValidateStatus:      validateAPIServiceStatus,
		StatusKeepsMetadata: true,
		ValidateName:        resource.NameIsPathSegment,
		Columns: []metav1.TableColumnDefinition{
			resource.NameColumn(),
			resource.Column("Service", "string", "The reference to the service that hosts this API endpoint."),
			resource.Column("Available", "string", "Whether this service is available."),
			resource.AgeColumn(),
		},
		Row: apiServiceRow,
	})
}

func apiServiceRow(s *apiregistrationv1.APIService, now time.Time) []any {
	service := "Local"
	if s.Spec.Service != nil {
		service = s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
	}
	return []any{s.Name, service, availableCell(s.Status.Conditions), resource.Age(s.CreationTimestamp, now)}
}

func availableCell(conditions []apiregistrationv1.APIServiceCondition) string {
	for _, c := range conditions {
		switch {
		case c.Type != apiregistrationv1.Available:
		case c.Status == apiregistrationv1.ConditionTrue:
			return string(c.Status)
		default:
			return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
	}
	return "Unknown"
}
