package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

const (
	// wipeDelay is how long a driver may be away before its ResourceSlices are
	// deleted. It is upstream's: enough to replace the pod of a driver.
	wipeDelay   = 30 * time.Second
	wipeTimeout = 30 * time.Second
	maxRewipe   = 5 * time.Minute // the longest time between two attempts at the start
)

// wipe deletes ResourceSlices of the node until ctx ends: all of them when the
// kubelet starts, because no driver is registered yet and pods would wait for
// one that does not come back, and later the slices of drivers that are lost.
func (r *Registry) wipe(ctx context.Context) {
	if r.manager.config.Client == nil {
		return
	}
	for wait := time.Second; ; wait = min(2*wait, maxRewipe) {
		err := r.deleteSlices(ctx, "")
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Deleting the ResourceSlices of the node failed, will try again", "in", wait)
		}
		if !supervise.Pause(ctx, wait) {
			return
		}
	}
	supervise.Every(ctx, lookPeriod, func() {
		supervise.Contain(ctx, "resource claims", func() { r.wipeLost(ctx) })
	})
}

// wipeLost deletes the ResourceSlices of the drivers that are lost for too long.
func (r *Registry) wipeLost(ctx context.Context) {
	for _, name := range r.lost() {
		if err := r.deleteSlices(ctx, name); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Deleting the ResourceSlices of a driver failed, will try again", "driver", name, "in", lookPeriod)
			}
			continue
		}
		klog.FromContext(ctx).Info("Deleted the ResourceSlices of a driver that is gone", "driver", name)
		r.mu.Lock()
		if d := r.drivers[name]; d != nil && !d.usable() {
			if d.wiped = true; len(d.plugins) == 0 {
				delete(r.drivers, name)
			}
		}
		r.mu.Unlock()
	}
}

// lost returns the drivers whose ResourceSlices are to be deleted now.
func (r *Registry) lost() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.drivers)) {
		if d := r.drivers[name]; !d.wiped && !d.lost.IsZero() && time.Since(d.lost) >= wipeDelay {
			out = append(out, name)
		}
	}
	return out
}

// deleteSlices deletes the ResourceSlices of a driver on this node, "" for all
// drivers.
func (r *Registry) deleteSlices(ctx context.Context, driver string) error {
	ctx, cancel := context.WithTimeout(ctx, wipeTimeout)
	defer cancel()
	selector := fields.Set{resourceapi.ResourceSliceSelectorNodeName: r.manager.config.NodeName}
	if driver != "" {
		selector[resourceapi.ResourceSliceSelectorDriver] = driver
	}
	err := r.manager.config.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil && !apierrors.IsNotFound(err) { // not found: the API is not served
		return fmt.Errorf("delete the ResourceSlices with %s: %w", selector, err)
	}
	return nil
}
