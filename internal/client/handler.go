package client

import "k8s.io/client-go/tools/cache"

// Handler returns an event handler for objects of type T. If an informer missed
// the deletion of an object, remove gets the last state that it knew.
func Handler[T any](add func(T), update func(old, new T), remove func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { add(obj.(T)) },
		UpdateFunc: func(old, obj any) { update(old.(T), obj.(T)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if object, ok := obj.(T); ok {
				remove(object)
			}
		},
	}
}
