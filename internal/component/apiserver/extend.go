package apiserver

import (
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/coracle-io/coracle/internal/apiserver/admission"
	"github.com/coracle-io/coracle/internal/apiserver/serviceresolver"
)

// admissionAccess returns the clients and resolvers that webhook and policy
// admission use.
func (a *Server) admissionAccess(authorizer authorizer.Authorizer) (*admission.Access, error) {
	c, err := a.Provider.As("system:apiserver", "system:masters", "system:authenticated")
	if err != nil {
		return nil, err
	}
	return &admission.Access{
		Kubernetes: c.Kubernetes, Dynamic: c.Dynamic, Informers: c.Informers, Authorizer: authorizer,
		Version:  compatibility.DefaultBuildEffectiveVersion(),
		Mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Kubernetes.Discovery())),
		Services: serviceresolver.New(a.storage.objects()), Authentication: a.traces.webhooks(),
	}, nil
}

// webhookServices returns the service resolver of conversion webhooks.
func (a *Server) webhookServices() (webhook.ServiceResolver, error) {
	return serviceresolver.New(a.storage.objects()), nil
}
