package registry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// rules returns the data of the request for the resource's rules.
func (q *Request) rules() *resource.RequestContext {
	r := &resource.RequestContext{
		Context: q.Context, Now: q.Now, User: q.User, Namespace: q.Info.Namespace, GroupVersion: q.Endpoint.Version.GroupVersion,
		Verb: q.Info.Verb, Features: q.Registry.Features, ForbidPrivileged: !q.Registry.AllowPrivileged,
		Warn: q.warn,
	}
	if q.User != nil {
		r.NamespaceLabels = func() map[string]string { return namespaceLabels(q.Registry.Cache, q.Info.Namespace) }
		// Authorized checks access to an object that the request's object refers to.
		r.Authorized = func(verb, group, resource, name string) bool {
			return q.Authorize(&authorizer.AttributesRecord{
				User: q.User, Verb: verb, APIGroup: group, APIVersion: "*", Resource: resource, Name: name, ResourceRequest: true,
			}) == nil
		}
		r.AuthorizePart = func(verb, part, namespace, name string) error {
			a := q.Attributes()
			a.Verb, a.Subresource, a.Namespace, a.Name = verb, part, namespace, name
			return q.Authorize(a)
		}
	}
	return r
}

// namespaceLabels returns the labels of a namespace; nil if it does not exist.
func namespaceLabels(cache *watchcache.Cache, name string) map[string]string {
	namespace, ok := objects.Of[*corev1.Namespace](objects.Cache{Cache: cache}, objects.Namespaces).Get("", name)
	if !ok {
		return nil
	}
	return namespace.Labels
}
