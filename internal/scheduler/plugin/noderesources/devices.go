package noderesources

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/dynamicresources"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/extendedresource"
)

// devices counts the devices that satisfy extended resources, for scores (KEP-5004). A
// nil devices counts none.
type devices struct {
	classes *extendedresource.Classes
	counter *dynamicresources.Devices
	views   framework.StateKey[*dynamicresources.DeviceView]
}

// newDevices returns nil if devices can satisfy none of the resources that are scored.
func newDevices(ctx context.Context, h *framework.Handle, scored []kubescheduler.ResourceSpec) (*devices, error) {
	scalar := slices.ContainsFunc(scored, func(r kubescheduler.ResourceSpec) bool { return isScalar(v1.ResourceName(r.Name)) })
	if !scalar || h == nil || h.Informers == nil {
		return nil, nil
	}
	classes, err := extendedresource.New(ctx, h.Informers)
	if err != nil {
		return nil, err
	}
	return &devices{classes: classes, counter: dynamicresources.NewDevices(h), views: framework.NewStateKey[*dynamicresources.DeviceView](h)}, nil
}

// usage returns how many devices for a resource are allocated, of those that a node has
// access to. The capacity is 0 if devices do not satisfy the resource. Devices are looked
// at once in a cycle.
func (d *devices) usage(ctx context.Context, cycle *framework.CycleState, name v1.ResourceName, n *framework.NodeInfo) (used, capacity int64) {
	if d == nil {
		return 0, 0
	}
	class := d.classes.Class(name)
	if class == nil {
		return 0, 0
	}
	view, ok := d.views.Get(cycle)
	var err error
	if !ok {
		if view, err = d.counter.View(); err == nil {
			d.views.Put(cycle, view)
		}
	}
	if err == nil {
		capacity, used, err = view.Count(ctx, class, n.Node)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Devices do not count in the score of a node", "node", n.Name, "resource", name, "deviceClass", class.Name)
		return 0, 0
	}
	return used, capacity
}
