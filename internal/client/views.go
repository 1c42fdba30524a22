package client

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// views finds the view of a Go type or a resource.
type views struct {
	cache  *watchcache.Cache
	byType map[reflect.Type]view // of built-in types; never changes
}

func newViews(c *watchcache.Cache) *views {
	v := &views{cache: c, byType: map[reflect.Type]view{}}
	for _, k := range c.Kinds() {
		for _, version := range k.Resource().Versions {
			if _, custom := version.New().(*unstructured.Unstructured); !custom {
				v.byType[reflect.TypeOf(version.New())] = view{cache: c, kind: k, version: version, selected: watchcache.NewSelection(k.Resource(), "", nil, nil)}
			}
		}
	}
	return v
}

// ofType returns the view of all objects of obj's type. v may be nil.
func (v *views) ofType(obj runtime.Object) (*view, bool) {
	if v == nil {
		return nil, false
	}
	found, ok := v.byType[reflect.TypeOf(obj)]
	return &found, ok
}

// ofResource returns the view of all objects of a resource, which may be a custom one. v
// may be nil.
func (v *views) ofResource(gvr schema.GroupVersionResource) (*view, bool) {
	if v == nil {
		return nil, false
	}
	for _, k := range v.cache.Kinds() {
		r := k.Resource()
		if r.Plural != gvr.Resource {
			continue
		}
		for _, version := range r.Versions {
			if version.GroupVersion == gvr.GroupVersion() {
				return &view{cache: v.cache, kind: k, version: version, selected: watchcache.NewSelection(r, "", nil, nil)}, true
			}
		}
	}
	return nil, false
}

// watcher returns Client.Watch of an identity. Resources that are not in the cache are
// watched with that identity's dynamic client.
func (v *views) watcher(fallback dynamic.Interface) func(schema.GroupVersionResource, string, fields.Selector) cache.SharedIndexInformer {
	return func(gvr schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
		if found, ok := v.ofResource(gvr); ok {
			found.selected = watchcache.NewSelection(found.kind.Resource(), namespace, nil, selector)
			return newInformer(found)
		}
		return dynamicInformer(fallback, gvr, namespace, selector)
	}
}

// dynamicInformer returns an informer of unstructured objects that uses the API.
func dynamicInformer(c dynamic.Interface, gvr schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return dynamicinformer.NewFilteredDynamicInformer(c, gvr, namespace, 0, indexers, withFieldSelector(selector)).Informer()
}

// withFieldSelector returns a function that sets a field selector in list options.
func withFieldSelector(selector fields.Selector) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		if selector != nil {
			options.FieldSelector = selector.String()
		}
	}
}
