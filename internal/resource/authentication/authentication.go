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
		review[authenticationv1.SelfSubjectReview]("SelfSubjectReview", "selfsubjectreviews", true),
		review[authenticationv1.TokenReview]("TokenReview", "tokenreviews", true),
	)
}

func review[S any, T resource.ObjectPointer[S]](kind, plural string, cluster bool) *resource.Resource {
	return resource.Define(resource.Definition[S, T]{
		GroupVersion: authenticationv1.SchemeGroupVersion,
		Kind:         kind,
		Plural:       plural,
		Cluster:      cluster,
		Verbs:        []string{"create"},
		Action:       resource.Review,
	})
}
