package dynamicresources

import (
	"context"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// celCacheSize bounds the compiled expressions of selectors.
const celCacheSize = 1000

// newCELCache returns a cache of the compiled selectors of devices.
func newCELCache(gates *feature.Set) *cel.Cache {
	return cel.NewCache(celCacheSize, cel.Features{
		EnableConsumableCapacity: gates.Enabled(feature.DRAConsumableCapacity),
		EnableListTypeAttributes: gates.Enabled(feature.DRAListTypeAttributes),
	})
}

// sharedClaims returns the claims that all plugins of a scheduler share.
func sharedClaims(h *framework.Handle) *claims {
	return framework.Share(h, Name, func() *claims {
		return newClaims(h.Informers.Resource().V1().ResourceClaims().Informer().GetIndexer())
	})
}

// Devices counts the devices of nodes, for plugins that score extended resources
// (KEP-5004).
type Devices struct {
	claims   *claims
	slices   resourcelisters.ResourceSliceLister
	features structured.Features
	celCache *cel.Cache
}

// NewDevices returns the devices that the informers of a handle know. Allocations that
// are not written yet count.
func NewDevices(h *framework.Handle) *Devices {
	return &Devices{
		claims: sharedClaims(h), slices: h.Informers.Resource().V1().ResourceSlices().Lister(), features: featuresOf(h.Features), celCache: newCELCache(h.Features),
	}
}

// DeviceView is the devices and allocations of one moment. It belongs to one attempt.
type DeviceView struct {
	*Devices
	allocated structured.AllocatedState
	byNode    map[string][]*resourceapi.ResourceSlice // that name their node
	others    []*resourceapi.ResourceSlice
}

// View returns the devices and allocations as they are now.
func (d *Devices) View() (*DeviceView, error) {
	list, err := d.slices.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	v := &DeviceView{Devices: d, allocated: d.claims.allocated(d.features.ConsumableCapacity), byNode: map[string][]*resourceapi.ResourceSlice{}}
	for _, slice := range list {
		if node := ptr.Deref(slice.Spec.NodeName, ""); node != "" {
			v.byNode[node] = append(v.byNode[node], slice)
		} else {
			v.others = append(v.others, slice)
		}
	}
	return v, nil
}

// Count returns how many devices of a class a node has access to, and how many of them
// are allocated. A device that several claims share counts as one. The error is of a
// selector of nodes or devices.
func (v *DeviceView) Count(ctx context.Context, class *resourceapi.DeviceClass, node *v1.Node) (total, allocated int64, err error) {
	for _, list := range [...][]*resourceapi.ResourceSlice{v.byNode[node.Name], v.others} {
		for _, slice := range list {
			all, taken, err := v.countIn(ctx, &slice.Spec, class, node)
			if err != nil {
				return 0, 0, err
			}
			total, allocated = total+all, allocated+taken
		}
	}
	return total, allocated, nil
}

// countIn is Count for one slice.
func (v *DeviceView) countIn(ctx context.Context, slice *resourceapi.ResourceSliceSpec, class *resourceapi.DeviceClass, node *v1.Node) (total, allocated int64, err error) {
	each := ptr.Deref(slice.PerDeviceNodeSelection, false)
	if !each {
		if ok, err := reaches(node, slice.NodeName, slice.AllNodes, slice.NodeSelector); err != nil || !ok {
			return 0, 0, err
		}
	}
	for i := range slice.Devices {
		device := &slice.Devices[i]
		if each {
			if ok, err := reaches(node, device.NodeName, device.AllNodes, device.NodeSelector); err != nil {
				return 0, 0, err
			} else if !ok {
				continue
			}
		}
		if ok, err := v.inClass(ctx, class, slice.Driver, device); err != nil {
			return 0, 0, err
		} else if !ok {
			continue
		}
		total++
		if structured.IsDeviceAllocated(structured.MakeDeviceID(slice.Driver, slice.Pool.Name, device.Name), &v.allocated) {
			allocated++
		}
	}
	return total, allocated, nil
}

// reaches reports whether a node has access to devices with this selection of nodes.
func reaches(node *v1.Node, name *string, all *bool, selector *v1.NodeSelector) (bool, error) {
	switch {
	case ptr.Deref(name, "") != "":
		return *name == node.Name, nil
	case ptr.Deref(all, false):
		return true, nil
	case selector == nil:
		return false, nil
	}
	parsed, err := nodeaffinity.NewNodeSelector(selector)
	return err == nil && parsed.Match(node), err
}

// inClass reports whether all selectors of a class select a device.
func (d *Devices) inClass(ctx context.Context, class *resourceapi.DeviceClass, driver string, device *resourceapi.Device) (bool, error) {
	celamount.Bound()
	for i := range class.Spec.Selectors {
		selector := class.Spec.Selectors[i].CEL
		if selector == nil {
			continue
		}
		compiled := d.celCache.GetOrCompile(selector.Expression)
		if compiled.Error != nil {
			return false, compiled.Error
		}
		matches, _, err := compiled.DeviceMatches(ctx, cel.Device{
			Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations, Attributes: device.Attributes, Capacity: device.Capacity,
		})
		if err != nil || !matches {
			return false, err
		}
	}
	return true, nil
}
