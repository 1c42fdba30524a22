package apiserver

import (
	"context"

	"github.com/coracle-io/coracle/internal/health"
)

// startup has the steps of an API server's start.
type startup struct {
	filled     <-chan struct{} // the cache has all objects
	defaults   *health.Step    // the default objects exist
	classified *health.Step    // requests are classified by flow schemas
	defined    *health.Step    // all custom resources are served
	// registered: each served group version has an APIService, and the
	// availability of aggregated servers is known.
	registered *health.Step
	repaired   *health.Step // cluster IPs and node ports of Services are allocated
}

func newStartup(filled <-chan struct{}) *startup {
	return &startup{
		filled: filled, defaults: health.NewStep(), classified: health.NewStep(), defined: health.NewStep(),
		registered: health.NewStep(), repaired: health.NewStep(),
	}
}

// wait waits until all steps are finished, or returns the error of ctx.
func (s *startup) wait(ctx context.Context) error {
	for _, step := range []*health.Step{s.defaults, s.classified, s.defined, s.registered, s.repaired} {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-step.Finished():
		}
	}
	return nil
}

// checks returns health checks of the steps, with the names and the order of the
// corresponding post-start hooks of upstream. fair includes the checks of
// priority and fairness, instead of the one of the limits without it.
func (s *startup) checks(fair bool) []health.Check {
	const hook = "poststarthook/"
	var all []health.Check
	for _, step := range []struct {
		finished <-chan struct{}
		name     string
		fairness bool
	}{
		{s.filled, hook + "start-apiserver-admission-initializer", false},
		{s.filled, hook + "generic-apiserver-start-informers", false},
		{s.classified.Finished(), hook + "priority-and-fairness-config-consumer", true},
		{s.classified.Finished(), hook + "priority-and-fairness-filter", true},
		{s.filled, hook + "storage-object-count-tracker-hook", false},
		{s.filled, hook + "start-apiextensions-informers", false},
		{s.defined.Finished(), hook + "start-apiextensions-controllers", false},
		{s.defined.Finished(), hook + "crd-informer-synced", false},
		{s.defaults.Finished(), hook + "start-system-namespaces-controller", false},
		{s.defaults.Finished(), hook + "start-cluster-authentication-info-controller", false},
		{s.filled, hook + "start-kube-apiserver-identity-lease-controller", false},
		{s.filled, hook + "start-kube-apiserver-identity-lease-garbage-collector", false},
		{s.filled, hook + "storage-readiness", false},
		{s.defaults.Finished(), hook + "start-legacy-token-tracking-controller", false},
		{s.repaired.Finished(), hook + "start-service-ip-repair-controllers", false},
		{s.defaults.Finished(), hook + "rbac/bootstrap-roles", false},
		{s.defaults.Finished(), hook + "scheduling/bootstrap-system-priority-classes", false},
		{s.defaults.Finished(), hook + "priority-and-fairness-config-producer", true},
		{s.defaults.Finished(), hook + "bootstrap-controller", false},
		{s.defaults.Finished(), hook + "start-kubernetes-service-cidr-controller", false},
		{s.filled, hook + "aggregator-reload-proxy-client-cert", false},
		{s.filled, hook + "start-kube-aggregator-informers", false},
		{s.registered.Finished(), hook + "apiservice-status-local-available-controller", false},
		{s.registered.Finished(), hook + "apiservice-status-remote-available-controller", false},
		{s.registered.Finished(), hook + "apiservice-registration-controller", false},
		{s.registered.Finished(), hook + "apiservice-discovery-controller", false},
		{s.registered.Finished(), hook + "kube-apiserver-autoregistration", false},
		{s.registered.Finished(), "autoregister-completion", false},
		{s.registered.Finished(), hook + "apiservice-openapi-controller", false},
		{s.registered.Finished(), hook + "apiservice-openapiv3-controller", false},
	} {
		if fair || !step.fairness {
			all = append(all, health.After(step.finished, step.name))
		}
	}
	if !fair {
		all = append(all, health.After(s.filled, hook+"max-in-flight-filter"))
	}
	return all
}
