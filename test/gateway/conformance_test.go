package gateway

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// TestConformance runs the core of the suite's profiles for HTTP and gRPC. Flags of the
// suite, such as -run-test, choose among its tests; with $CORACLE_GATEWAY_EXTENDED, those of
// all features that the status of the GatewayClass names run, too.
func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	options.GatewayClassName = "coracle"
	options.CleanupBaseResources = true
	options.ConformanceProfiles = sets.New(suite.GatewayHTTPConformanceProfileName, suite.GatewayGRPCConformanceProfileName)
	options.Implementation = confv1.Implementation{
		Organization: "coracle-io", Project: "coracle", URL: "https://github.com/coracle-io/coracle", Version: "devel",
		Contact: []string{"https://github.com/coracle-io/coracle/issues"},
	}
	if os.Getenv("CORACLE_GATEWAY_EXTENDED") == "" {
		options.SupportedFeatures = sets.New(features.SupportGateway, features.SupportHTTPRoute, features.SupportGRPCRoute, features.SupportReferenceGrant)
	}
	conformance.RunConformanceWithOptions(t, options)
}
