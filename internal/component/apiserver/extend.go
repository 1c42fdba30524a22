package apiserver

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/coracle-io/coracle/internal/apiserver/admission"
	"github.com/coracle-io/coracle/internal/apiserver/reach"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/encrypt"
)

// encrypted puts the encryption of --encryption-provider-config over a store.
func (f *Flags) encrypted(ctx context.Context, s store.Store, resources map[string]schema.GroupResource) (*encrypt.Store, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	e, err := encrypt.New(ctx, s, encrypt.Config{File: f.EncryptionConfig, Resources: resources, ServerID: host})
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return e, nil
}

// admissionAccess is how users' webhooks and policies see the cluster.
func (a *Server) admissionAccess(authorizer authorizer.Authorizer) (*admission.Access, error) {
	c, err := a.Provider.As("system:apiserver", "system:masters", "system:authenticated")
	if err != nil {
		return nil, err
	}
	return &admission.Access{
		Kubernetes: c.Kubernetes, Dynamic: c.Dynamic, Informers: c.Informers, Authorizer: authorizer,
		Version:  compatibility.DefaultBuildEffectiveVersion(),
		Mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Kubernetes.Discovery())),
		Services: reach.New(a.storage.objects()),
	}, nil
}

// webhookServices finds the Services of conversion webhooks.
func (a *Server) webhookServices() (webhook.ServiceResolver, error) {
	return reach.New(a.storage.objects()), nil
}
