package component

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery/cached/memory"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/restmapper"

	"github.com/coracle-io/coracle/internal/apiserver/admission"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/encrypt"
)

// encrypted puts the encryption of --encryption-provider-config over a store.
func (f *APIServerFlags) encrypted(ctx context.Context, s store.Store, resources []*resource.Resource) (*encrypt.Store, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	byPath := map[string]schema.GroupResource{}
	for _, r := range resources {
		byPath[r.StoragePath] = r.GroupResource()
	}
	e, err := encrypt.New(ctx, s, encrypt.Config{File: f.EncryptionConfig, Resources: byPath, ServerID: host})
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return e, nil
}

// admissionAccess is how users' webhooks and policies see the cluster.
func (a *APIServer) admissionAccess(authorizer authorizer.Authorizer) (*admission.Access, error) {
	c, err := a.Provider.As("system:apiserver", "system:masters", "system:authenticated")
	if err != nil {
		return nil, err
	}
	return &admission.Access{
		Kubernetes: c.Kubernetes, Dynamic: c.Dynamic, Informers: c.Informers, Authorizer: authorizer,
		Version:  compatibility.DefaultBuildEffectiveVersion(),
		Mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Kubernetes.Discovery())),
		Services: serviceResolver{services: c.Kubernetes.CoreV1()},
	}, nil
}

// webhookServices finds the Services of conversion webhooks.
func (a *APIServer) webhookServices() (webhook.ServiceResolver, error) {
	c, err := a.Provider.As("system:apiserver", "system:masters", "system:authenticated")
	if err != nil {
		return nil, err
	}
	return serviceResolver{services: c.Kubernetes.CoreV1()}, nil
}

// serviceResolver finds Services by their cluster IPs: this process need not
// be a client of the cluster's DNS.
type serviceResolver struct{ services corev1.ServicesGetter }

// resolveTimeout bounds the reading of a Service out of this very server.
const resolveTimeout = 5 * time.Second

// ResolveEndpoint implements webhook.ServiceResolver.
func (r serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	service, err := r.services.Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	host := service.Spec.ClusterIP
	if service.Spec.Type == v1.ServiceTypeExternalName {
		host = service.Spec.ExternalName
	}
	if host == "" || host == v1.ClusterIPNone {
		return nil, fmt.Errorf("service %s/%s has no cluster IP to call", namespace, name)
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}, nil
}
