package client

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

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

// SetHandler is Handler with one function for new and changed objects.
func SetHandler[T any](set, remove func(T)) cache.ResourceEventHandler {
	return Handler(set, func(_, obj T) { set(obj) }, remove)
}

// Replaced reports whether an informer's update is from one object to another of the same
// name. An informer that has missed the deletion of an object shows it so.
func Replaced(old, obj any) bool {
	before, ok := old.(metav1.Object)
	if !ok {
		return false
	}
	after, ok := obj.(metav1.Object)
	return ok && before.GetUID() != after.GetUID()
}
