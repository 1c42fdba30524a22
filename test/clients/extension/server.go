// Package extension contains an extension API server, built with
// k8s.io/apiserver, and a test that registers it with the cluster of
// $KUBECONFIG. The server gets the user of a request from the front proxy's
// headers, and asks the cluster whether the user has permission.
package extension

import (
	"context"
	"fmt"
	"net"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
)

// serve runs the server on a listener until ctx ends, with a certificate and
// its key in files. kubeconfig is the kubeconfig file of the cluster.
func serve(ctx context.Context, listener net.Listener, certFile, keyFile, kubeconfig string, apples *storage) error {
	scheme, codecs := newScheme()
	config := genericapiserver.NewRecommendedConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer(scheme))
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer(scheme))
	config.OpenAPIConfig.Info.Title, config.OpenAPIV3Config.Info.Title = "Orchard", "Orchard"

	serving := options.NewSecureServingOptions().WithLoopback()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	if serving.BindPort, err = strconv.Atoi(port); err != nil {
		return err
	}
	serving.Listener = listener
	serving.ServerCert.CertKey = options.CertKey{CertFile: certFile, KeyFile: keyFile}
	authentication := options.NewDelegatingAuthenticationOptions()
	authentication.RemoteKubeConfigFile = kubeconfig
	authorization := options.NewDelegatingAuthorizationOptions()
	authorization.RemoteKubeConfigFile = kubeconfig
	if err := serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	if err := authentication.ApplyTo(&config.Authentication, config.SecureServing, config.OpenAPIConfig); err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	if err := authorization.ApplyTo(&config.Authorization); err != nil {
		return fmt.Errorf("authorization: %w", err)
	}
	server, err := config.Complete().New("orchard", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(groupVersion.Group, scheme, metav1.ParameterCodec, codecs)
	group.PrioritizedVersions = scheme.PrioritizedVersionsForGroup(groupVersion.Group)
	group.VersionedResourcesStorageMap[groupVersion.Version] = map[string]rest.Storage{"apples": apples}
	if err := server.InstallAPIGroup(&group); err != nil {
		return err
	}
	return server.PrepareRun().RunWithContext(ctx)
}
