package aggregator

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/recovery"
	"github.com/coracle-io/coracle/internal/supervise"
)

// check reports whether the server serves its group version, as the condition
// Available.
func (b *backend) check(ctx context.Context) apiregistrationv1.APIServiceCondition {
	ref := b.spec.Service
	service, ok := b.server.services.Get(ref.Namespace, ref.Name)
	if !ok {
		service = nil
	}
	if c := endpointProblem(ref, service, b.server.services.Slices(ref.Namespace, ref.Name)); c != nil {
		return *c
	}
	if err := b.probe(ctx); err != nil {
		return *unavailable("FailedDiscoveryCheck", "%v", err)
	}
	return apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Passed", Message: "all checks passed",
	}
}

func unavailable(reason, format string, args ...any) *apiregistrationv1.APIServiceCondition {
	return &apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// endpointProblem returns why a Service, nil if it does not exist, has no
// usable endpoint; nil if it may have one.
func endpointProblem(ref *apiregistrationv1.ServiceReference, service *corev1.Service, all []*discoveryv1.EndpointSlice) *apiregistrationv1.APIServiceCondition {
	if service == nil {
		return unavailable("ServiceNotFound", "service/%s in %q is not present", ref.Name, ref.Namespace)
	}
	if service.Spec.Type != corev1.ServiceTypeClusterIP {
		return nil
	}
	number := port(ref)
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == number })
	if i < 0 {
		return unavailable("ServicePortError", "service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, number)
	}
	if len(all) == 0 {
		return unavailable("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", ref.Name, ref.Namespace)
	}
	name := service.Spec.Ports[i].Name
	if !slices.ContainsFunc(all, func(s *discoveryv1.EndpointSlice) bool { return reachable(s, name) }) {
		return unavailable("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", ref.Name, ref.Namespace, name)
	}
	return nil
}

// reachable reports whether a slice has a ready endpoint and the named port.
func reachable(s *discoveryv1.EndpointSlice, portName string) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }) &&
		slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
			return p.Name != nil && *p.Name == portName && p.Port != nil
		})
}

const (
	probeTimeout  = 5 * time.Second
	probeAttempts = 5 // each may use another endpoint
)

// probe requests the discovery document of the group version. If the
// first attempt fails, it makes the others concurrently, and one must succeed.
func (b *backend) probe(ctx context.Context) error {
	err := b.probeOnce(ctx)
	if err == nil {
		return nil
	}
	for _, attempt := range supervise.ForEach(probeAttempts-1, func(int) error {
		return recovery.Call(ctx, "probing APIService "+b.name, func() error { return b.probeOnce(ctx) })
	}) {
		if attempt == nil {
			return nil
		}
		err = attempt
	}
	return err
}

func (b *backend) probeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	u, err := b.server.resolve(b.spec.Service)
	if err != nil {
		return err
	}
	u.Path = "/apis/" + b.groupVersion().String()
	if b.spec.Group == "" {
		u.Path = "/api/" + b.spec.Version
	}
	if err := b.ask(ctx, u); err != nil {
		b.transport.CloseIdleConnections()
		return fmt.Errorf("failing or missing response from %v: %w", u, err)
	}
	return nil
}

func (b *backend) ask(ctx context.Context, u *url.URL) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	transport.SetAuthProxyHeaders(r, aggregatorName, "", []string{"system:masters"}, nil)
	response, err := b.client().Do(r)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("bad status from %v: %d", u, response.StatusCode)
	}
	return nil
}

// aggregatorName is the user of this server's own requests.
const aggregatorName = "system:kube-aggregator"

// client returns a client that does not follow redirects, since a server must
// not redirect this one elsewhere.
func (b *backend) client() *http.Client {
	return &http.Client{Transport: b.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
