// Package authorization defines the resources of the group authorization.k8s.io:
// reviews, which the API server answers and does not store.
package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17600},
		resource.DefineReview[authorizationv1.LocalSubjectAccessReview](authorizationv1.SchemeGroupVersion, "LocalSubjectAccessReview", "localsubjectaccessreviews", false),
		resource.DefineReview[authorizationv1.SelfSubjectAccessReview](authorizationv1.SchemeGroupVersion, "SelfSubjectAccessReview", "selfsubjectaccessreviews", true),
		resource.DefineReview[authorizationv1.SelfSubjectRulesReview](authorizationv1.SchemeGroupVersion, "SelfSubjectRulesReview", "selfsubjectrulesreviews", true),
		resource.DefineReview[authorizationv1.SubjectAccessReview](authorizationv1.SchemeGroupVersion, "SubjectAccessReview", "subjectaccessreviews", true),
	)
}
