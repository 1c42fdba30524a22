// Package localapi serves gRPC services at sockets of the node, for other programs of
// the node.
package localapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/supervise"
)

// The rate limit of all clients of a service together, without streams. It is
// upstream's.
const (
	perSecond = 100
	burst     = 10
)

// Service is a service at a socket.
type Service struct {
	Name     string // in the log, such as "pod resources"
	Dir      string // of the socket
	Socket   string // its name in Dir
	Files    files.FS
	Register func(r grpc.ServiceRegistrar)
	// Count is told of each request that was served and each stream that has ended:
	// its method, such as List, and its error.
	Count func(method string, err error)
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) {
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, time.Minute) {
		if err := s.serve(ctx); err != nil && ctx.Err() == nil {
			supervise.LogFailure(ctx, s.Name, err, "Serving at a socket failed, will try again", "service", s.Name)
		}
		supervise.Pause(ctx, wait)
	}
}

func (s *Service) serve(ctx context.Context) error {
	if err := s.Files.MkdirAll(s.Dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of the socket: %w", err)
	}
	socket := filepath.Join(s.Dir, s.Socket)
	if err := s.Files.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier kubelet: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listen at the socket: %w", err)
	}
	stream := func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		err := supervise.Call(func() error { return handler(service, stream) })
		s.Count(path.Base(info.FullMethod), err)
		return err
	}
	server := grpc.NewServer(grpc.MaxConcurrentStreams(16), grpc.UnaryInterceptor(s.unary()), grpc.StreamInterceptor(stream))
	s.Register(server)
	defer context.AfterFunc(ctx, server.Stop)()
	defer server.Stop()
	return server.Serve(listener)
}

// unary returns an interceptor of requests, which refuses those beyond the rate limit.
func (s *Service) unary() grpc.UnaryServerInterceptor {
	limiter := flowcontrol.NewTokenBucketRateLimiter(perSecond, burst)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		if !limiter.TryAccept() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		err = supervise.Call(func() (err error) {
			response, err = handler(ctx, request)
			return err
		})
		s.Count(path.Base(info.FullMethod), err)
		return response, err
	}
}
