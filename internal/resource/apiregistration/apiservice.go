package apiregistration

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// APIServices is the resource apiservices.
func APIServices() *resource.Resource {
	return resource.Define(resource.Definition[apiregistrationv1.APIService, *apiregistrationv1.APIService]{
		GroupVersion: apiregistrationv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "APIService",
			Plural:     "apiservices",
			Categories: []string{"api-extensions"},
		},
		Cluster: true,
		Storage: resource.Storage{StoredAsJSON: true, Path: "apiregistration.k8s.io/apiservices"},
		Default: func(s *apiregistrationv1.APIService) {
			if s.Spec.Service != nil {
				defaults.Nil(&s.Spec.Service.Port, 443)
			}
		},
		Status: resource.Status[*apiregistrationv1.APIService]{
			Copy:          func(s, from *apiregistrationv1.APIService) { s.Status = from.Status },
			Validate:      validateAPIServiceStatus,
			KeepsMetadata: true,
		},
		UnqualifiedFinalizers: true,
		Strategy: resource.Strategy[*apiregistrationv1.APIService]{
			ForbidUnconditionalUpdate: true,
			PrepareForCreate:          setLocalAvailable,
			PrepareForUpdate:          func(r *resource.RequestContext, s, _ *apiregistrationv1.APIService) { setLocalAvailable(r, s) },
			Validate:                  validateAPIService,
			ValidateName:              resource.NameIsPathSegment,
		},
		Table: resource.Table[*apiregistrationv1.APIService]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.Column("Service", "string", "The reference to the service that hosts this API endpoint."),
				resource.Column("Available", "string", "Whether this service is available."),
				resource.AgeColumn(),
			},
			Row: apiServiceRow,
		},
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
