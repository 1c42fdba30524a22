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

// views finds the watch cache's part behind a Go type or a resource name.
type views struct {
	cache  *watchcache.Cache
	byType map[reflect.Type]view // built-in types, which never change
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

// ofType returns the view of all objects of obj's type. No views have none.
func (v *views) ofType(obj runtime.Object) (*view, bool) {
	if v == nil {
		return nil, false
	}
	found, ok := v.byType[reflect.TypeOf(obj)]
	return &found, ok
}

// ofResource returns the view of all objects of a resource, custom ones too.
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

// watcher is the Client.Watch of an identity; what the cache does not hold is
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

// dynamicInformer makes an informer of unstructured objects over the API.
func dynamicInformer(c dynamic.Interface, gvr schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return dynamicinformer.NewFilteredDynamicInformer(c, gvr, namespace, 0, indexers, selecting(selector)).Informer()
}

// selecting puts a field selector into list options.
func selecting(selector fields.Selector) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		if selector != nil {
			options.FieldSelector = selector.String()
		}
	}
}
