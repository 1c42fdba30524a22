package cri

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	internalapi "k8s.io/cri-api/pkg/apis"
	remote "k8s.io/cri-client/pkg"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Dial connects to the CRI services of a runtime. It retries until they answer
// or ctx ends. If imageEndpoint is empty, runtimeEndpoint serves both. timeout
// bounds each call. Lists come in parts from runtimes that can do that: pods
// choose how long a list is, and a message has at most 16 MiB. Calls are spans of
// traces, and are not traced if that is nil.
func Dial(ctx context.Context, runtimeEndpoint, imageEndpoint string, timeout time.Duration, traces trace.TracerProvider) (internalapi.RuntimeService, internalapi.ImageManagerService, error) {
	if runtimeEndpoint == "" {
		return nil, nil, fmt.Errorf("no container runtime: set containerRuntimeEndpoint (--container-runtime-endpoint), for example unix:///run/containerd/containerd.sock")
	}
	if imageEndpoint == "" {
		imageEndpoint = runtimeEndpoint
	}
	var last error
	for {
		runtime, err := remote.NewRemoteRuntimeServiceBuilder().WithEndpoint(runtimeEndpoint).WithConnectionTimeout(timeout).WithTracerProvider(traces).WithUseStreaming(true).Build(ctx)
		if err == nil {
			images, err := remote.NewRemoteImageServiceBuilder().WithEndpoint(imageEndpoint).WithConnectionTimeout(timeout).WithTracerProvider(traces).WithUseStreaming(true).Build(ctx)
			if err == nil {
				return runtime, images, nil
			}
			_ = runtime.Close(ctx)
			last = err
		} else {
			last = err
		}
		if !supervise.Pause(ctx, 100*time.Millisecond) {
			return nil, nil, fmt.Errorf("connect to the container runtime at %s: %w", runtimeEndpoint, last)
		}
	}
}
