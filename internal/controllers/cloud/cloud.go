// Package cloud has the names of the controllers that a cloud controller manager
// runs. Upstream's controller manager accepts them in --controllers, and leaves
// their work to an external cloud provider.
package cloud

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptors describes the controllers. They do nothing.
func Descriptors() []controller.Descriptor {
	return []controller.Descriptor{
		external("node-route-controller", "route"),
		external("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
	}
}

func external(name, alias string) controller.Descriptor {
	return controller.Descriptor{
		Name: name, Aliases: []string{alias}, OffByDefault: true,
		New: func(*controller.Env) (controller.Controller, error) {
			return controller.Func(func(ctx context.Context) error {
				klog.FromContext(ctx).Info("Nothing to do: this controller runs in an external cloud controller manager")
				<-ctx.Done()
				return nil
			}), nil
		},
	}
}
