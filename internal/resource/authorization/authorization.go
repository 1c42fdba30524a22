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
		review[authorizationv1.LocalSubjectAccessReview]("LocalSubjectAccessReview", "localsubjectaccessreviews", false),
		review[authorizationv1.SelfSubjectAccessReview]("SelfSubjectAccessReview", "selfsubjectaccessreviews", true),
		review[authorizationv1.SelfSubjectRulesReview]("SelfSubjectRulesReview", "selfsubjectrulesreviews", true),
		review[authorizationv1.SubjectAccessReview]("SubjectAccessReview", "subjectaccessreviews", true),
	)
}

func review[S any, T resource.ObjectPointer[S]](kind, plural string, cluster bool) *resource.Resource {
	return resource.Define(resource.Definition[S, T]{
		GroupVersion: authorizationv1.SchemeGroupVersion,
		Kind:         kind,
		Plural:       plural,
		Cluster:      cluster,
		Verbs:        []string{"create"},
		Action:       resource.Review,
	})
}
