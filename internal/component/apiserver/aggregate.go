package apiserver

import (
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/aggregator"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
)

// newAggregator returns the proxy to the servers behind APIServices. It presents
// a certificate of the front proxy's authority.
func (a *Server) newAggregator(builtIn []*resource.Resource, documents *openapi.Handler) (*aggregator.Server, error) {
	identity, err := a.options.FrontProxy.identity(a.keys)
	if err != nil {
		return nil, err
	}
	return aggregator.New(aggregator.Config{
		Cache: a.storage.cache, BuiltIn: builtIn, ClientCertificate: identity,
		WithoutUIDs: !a.apis.features.Enabled(feature.RemoteRequestHeaderUID),
		Documents:   documents, Managers: a.extensions.managers, Clock: clock.RealClock{},
		Unavailable: a.metrics.Unavailable, Dial: a.own.dialOthers, Wrap: a.traces.transport(),
	}), nil
}

// served implements crd.Routes for the API server and the aggregator.
type served struct {
	*apiserver.Server
	aggregated *aggregator.Server
}

// SetResources implements crd.Routes.
func (s served) SetResources(rs []*resource.Resource) {
	s.Server.SetResources(rs)
	s.aggregated.SetResources(rs)
}
