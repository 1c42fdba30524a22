// Package extendedresource finds the DeviceClasses whose devices satisfy
// requests for extended resources (KEP-5004). A node that reports the resource
// itself, as device plugins do, is not concerned.
package extendedresource

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// index is the name of the index of DeviceClasses by extended resource.
const index = "extendedResource"

// Classes finds DeviceClasses by extended resource. A nil Classes finds none.
type Classes struct{ indexer cache.Indexer }

// New returns the classes that an informer has.
func New(ctx context.Context, f informers.SharedInformerFactory) (*Classes, error) {
	informer := f.Resource().V1().DeviceClasses().Informer()
	err := client.Index(ctx, informer, index, func(obj any) ([]string, error) {
		class, ok := obj.(*resourceapi.DeviceClass)
		if !ok {
			return nil, nil
		}
		return namesOf(class), nil
	})
	if err != nil {
		return nil, err
	}
	return &Classes{informer.GetIndexer()}, nil
}

// namesOf returns the resources that devices of a class satisfy.
func namesOf(class *resourceapi.DeviceClass) []string {
	names := []string{resourceapi.ResourceDeviceClassPrefix + class.Name}
	if name := class.Spec.ExtendedResourceName; name != nil {
		names = append(names, *name)
	}
	return names
}

// Requested reports whether a pod requests an extended resource that devices
// of the class satisfy.
func Requested(pod *framework.PodInfo, class *resourceapi.DeviceClass) bool {
	for _, name := range namesOf(class) {
		if pod.Requests.Scalar[v1.ResourceName(name)] > 0 {
			return true
		}
	}
	return false
}

// Gains reports whether a pod requests an extended resource that devices of the class
// satisfy, and did not before. old is nil if the class is new.
func Gains(pod *framework.PodInfo, old, class *resourceapi.DeviceClass) bool {
	var before []string
	if old != nil {
		before = namesOf(old)
	}
	return slices.ContainsFunc(namesOf(class), func(name string) bool {
		return pod.Requests.Scalar[v1.ResourceName(name)] > 0 && !slices.Contains(before, name)
	})
}

// Class returns the class for a resource, or nil. The newest of several wins,
// then the one whose name is first.
func (c *Classes) Class(name v1.ResourceName) *resourceapi.DeviceClass {
	if c == nil || !strings.Contains(string(name), "/") {
		return nil
	}
	found, err := c.indexer.ByIndex(index, string(name))
	if err != nil {
		return nil
	}
	var best *resourceapi.DeviceClass
	for _, obj := range found {
		class, ok := obj.(*resourceapi.DeviceClass)
		if !ok {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&class.CreationTimestamp) ||
			best.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < best.Name {
			best = class
		}
	}
	return best
}

// OnNode reports whether devices have to satisfy a request for the resource on
// a node: there is a class for it, and the node itself has none of it.
func (c *Classes) OnNode(name v1.ResourceName, n *framework.NodeInfo) bool {
	return n.Allocatable.Scalar[name] == 0 && c.Class(name) != nil
}
