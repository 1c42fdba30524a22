package dynamicresources

import (
	"context"
	"iter"

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
// selector of the class.
func (v *DeviceView) Count(ctx context.Context, class *resourceapi.DeviceClass, node *v1.Node) (total, allocated int64, err error) {
	for _, list := range [...][]*resourceapi.ResourceSlice{v.byNode[node.Name], v.others} {
		for slice, device := range devicesFor(list, node) {
			ok, err := v.inClass(ctx, class, slice.Driver, device)
			if err != nil {
				return 0, 0, err
			}
			if !ok {
				continue
			}
			total++
			if structured.IsDeviceAllocated(structured.MakeDeviceID(slice.Driver, slice.Pool.Name, device.Name), &v.allocated) {
				allocated++
			}
		}
	}
	return total, allocated, nil
}

// devicesFor yields the devices that a node has access to, with their slices.
func devicesFor(slices []*resourceapi.ResourceSlice, node *v1.Node) iter.Seq2[*resourceapi.ResourceSliceSpec, *resourceapi.Device] {
	return func(yield func(*resourceapi.ResourceSliceSpec, *resourceapi.Device) bool) {
		for _, slice := range slices {
			spec := &slice.Spec
			each := ptr.Deref(spec.PerDeviceNodeSelection, false)
			if !each && !reaches(node, spec.NodeName, spec.AllNodes, spec.NodeSelector) {
				continue
			}
			for i := range spec.Devices {
				d := &spec.Devices[i]
				if (!each || reaches(node, d.NodeName, d.AllNodes, d.NodeSelector)) && !yield(spec, d) {
					return
				}
			}
		}
	}
}

func reaches(node *v1.Node, name *string, all *bool, selector *v1.NodeSelector) bool {
	if ptr.Deref(all, false) || name != nil && *name == node.Name {
		return true
	}
	if selector == nil {
		return false
	}
	s, err := nodeaffinity.NewNodeSelector(selector)
	return err == nil && s.Match(node)
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
