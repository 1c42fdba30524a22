// Package authentication defines the resources of the group authentication.k8s.io:
// reviews, which the API server answers and does not store.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/coracle-io/coracle/internal/resource"
)

// Resources lists the group's resources.
func Resources() []*resource.Resource {
	return resource.InGroup(resource.Priorities{Group: 17700},
		resource.DefineReview[authenticationv1.SelfSubjectReview](authenticationv1.SchemeGroupVersion, "SelfSubjectReview", "selfsubjectreviews", true),
		resource.DefineReview[authenticationv1.TokenReview](authenticationv1.SchemeGroupVersion, "TokenReview", "tokenreviews", true),
	)
}
