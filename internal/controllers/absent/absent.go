// Package absent has the names of upstream's controllers that are not here, because
// their features are alpha. --controllers accepts the names, so that a command line for
// upstream starts. The log says that nothing runs.
package absent

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/feature"
)

// Descriptors describes the controllers. They do nothing.
func Descriptors() []controller.Descriptor {
	return []controller.Descriptor{
		descriptor("resourcepoolstatusrequest-controller", feature.DRAResourcePoolStatus),
	}
}

// descriptor describes a controller of a feature gate.
func descriptor(name string, gate feature.Gate) controller.Descriptor {
	return controller.Descriptor{
		Name: name, OffByDefault: true,
		New: func(env *controller.Env) (controller.Controller, error) {
			message := "Nothing to do: this controller is not available"
			if !env.Features.Enabled(gate) {
				message = "Controller is disabled by a feature gate"
			}
			return controller.Func(func(ctx context.Context) error {
				klog.FromContext(ctx).Info(message, "controller", name, "featureGate", gate)
				<-ctx.Done()
				return nil
			}), nil
		},
	}
}
