// Package plugintest serves the plugins of tests to kubelets.
package plugintest

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Serve serves a plugin on the socket about.Endpoint, and its registration on
// another, until stop is called, which removes both. register adds the services
// of the plugin.
func Serve(about *registerapi.PluginInfo, registration string, register func(s *grpc.Server)) (stop func(), err error) {
	stopPlugin, err := serve(about.GetEndpoint(), register)
	if err != nil {
		return nil, err
	}
	stopRegistration, err := serve(registration, func(s *grpc.Server) {
		registerapi.RegisterRegistrationServer(s, &registrar{about: about})
	})
	if err != nil {
		stopPlugin()
		return nil, err
	}
	return func() { stopRegistration(); stopPlugin() }, nil
}

func serve(socket string, register func(s *grpc.Server)) (stop func(), err error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server, done := grpc.NewServer(), make(chan struct{})
	register(server)
	go func() { defer close(done); _ = server.Serve(listener) }()
	return func() { server.Stop(); <-done }, nil
}

// registrar answers the kubelet that looks for plugins.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	about *registerapi.PluginInfo
}

func (r *registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return r.about, nil
}

func (r *registrar) NotifyRegistrationStatus(context.Context, *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}
