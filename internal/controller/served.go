package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
)

// IsServed reports whether gates are on and the API server serves a resource.
func (e *Env) IsServed(ctx context.Context, resource schema.GroupVersionResource, gates ...feature.Gate) (bool, error) {
	for _, gate := range gates {
		if !e.Features.Enabled(gate) {
			return false, nil
		}
	}
	served, err := client.IsServed(ctx, e.Client.Kubernetes.Discovery(), resource)
	if err != nil {
		return false, fmt.Errorf("asking whether %s are served: %w", resource.Resource, err)
	}
	return served, nil
}

// WaitUnlessServed returns what IsServed does: if that is false, when ctx ends. The Run of
// a controller that has nothing to do without the resource returns then.
func (e *Env) WaitUnlessServed(ctx context.Context, resource schema.GroupVersionResource, gates ...feature.Gate) (bool, error) {
	served, err := e.IsServed(ctx, resource, gates...)
	if !served && err == nil {
		<-ctx.Done()
	}
	return served, err
}
