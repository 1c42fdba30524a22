package client

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
)

// PendingSync is the first list of a resource.
type PendingSync struct {
	Resource schema.GroupVersionResource
	Synced   cache.DoneChecker
}

// servedPause is how long WaitServed waits before it asks what is served.
const servedPause = time.Second

// WaitServed waits until all first lists are there. It does not wait for resources that the
// API server does not serve, such as those that --runtime-config turns off, and returns them.
// Their informers keep trying, so that their objects appear once they are served. The error
// is ctx's.
func WaitServed(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, awaited ...PendingSync) (unserved []schema.GroupVersionResource, err error) {
	for {
		awaited = slices.DeleteFunc(awaited, func(a PendingSync) bool { return isDone(a.Synced) })
		checkers := make([]cache.DoneChecker, 0, len(awaited))
		for _, a := range awaited {
			checkers = append(checkers, a.Synced)
		}
		within, cancel := context.WithTimeout(ctx, servedPause)
		done := cache.WaitFor(within, "", checkers...)
		cancel()
		if done || ctx.Err() != nil {
			return unserved, ctx.Err()
		}
		awaited = slices.DeleteFunc(awaited, func(a PendingSync) bool {
			if isDone(a.Synced) {
				return true
			}
			served, err := IsServed(ctx, d, a.Resource)
			if served || err != nil {
				return false
			}
			unserved = append(unserved, a.Resource)
			return true
		})
	}
}

func isDone(c cache.DoneChecker) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// IsServed reports whether the API server serves a resource.
func IsServed(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, resource schema.GroupVersionResource) (bool, error) {
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }), nil
}
