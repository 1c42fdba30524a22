//go:build openapigen

package main

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
)

// The route installer of k8s.io/apiserver chooses routes by the interfaces of
// a storage. The types of this file implement these interfaces only for it:
// none of their methods that serve requests is called.

const neverServed = "a storage that only describes routes was called"

type base struct {
	kind        schema.GroupVersionKind
	object      func() runtime.Object
	singular    string
	cluster     bool
	returnsFull bool
}

func (b base) New() runtime.Object                                          { return b.object() }
func (b base) Destroy()                                                     {}
func (b base) NamespaceScoped() bool                                        { return !b.cluster }
func (b base) GetSingularName() string                                      { return b.singular }
func (b base) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return b.kind }
func (b base) DeleteReturnsDeletedObject() bool                             { return b.returnsFull }

type getter struct{}

func (getter) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	panic(neverServed)
}

type lister struct{ list func() runtime.Object }

func (l lister) NewList() runtime.Object { return l.list() }
func (lister) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	panic(neverServed)
}
func (lister) ConvertToTable(context.Context, runtime.Object, runtime.Object) (*metav1.Table, error) {
	panic(neverServed)
}

type watcher struct{}

func (watcher) Watch(context.Context, *internalversion.ListOptions) (watch.Interface, error) {
	panic(neverServed)
}

type creater struct{}

func (creater) Create(context.Context, runtime.Object, rest.ValidateObjectFunc, *metav1.CreateOptions) (runtime.Object, error) {
	panic(neverServed)
}

type updater struct{}

func (updater) Update(context.Context, string, rest.UpdatedObjectInfo, rest.ValidateObjectFunc, rest.ValidateObjectUpdateFunc, bool, *metav1.UpdateOptions) (runtime.Object, bool, error) {
	panic(neverServed)
}

type deleter struct{}

func (deleter) Delete(context.Context, string, rest.ValidateObjectFunc, *metav1.DeleteOptions) (runtime.Object, bool, error) {
	panic(neverServed)
}

type collectionDeleter struct{}

func (collectionDeleter) DeleteCollection(context.Context, rest.ValidateObjectFunc, *metav1.DeleteOptions, *internalversion.ListOptions) (runtime.Object, error) {
	panic(neverServed)
}

type (
	full struct {
		base
		getter
		lister
		watcher
		creater
		updater
		deleter
		collectionDeleter
	}
	withoutCollection struct {
		base
		getter
		lister
		watcher
		creater
		updater
		deleter
	}
	readOnly struct {
		base
		getter
		lister
	}
	createOnly struct {
		base
		creater
	}
	part struct { // get, patch, update
		base
		getter
		updater
	}
	updateOnly struct {
		base
		updater
	}
)

// action is a subresource created below an object's name.
type action struct{ base }

func (action) Create(context.Context, string, runtime.Object, rest.ValidateObjectFunc, *metav1.CreateOptions) (runtime.Object, error) {
	panic(neverServed)
}

// log is the pod's log: read with options, returned as plain text.
type log struct {
	base
	options func() runtime.Object
}

func (l log) NewGetOptions() (runtime.Object, bool, string) { return l.options(), false, "" }
func (log) ProducesMIMETypes(string) []string               { return []string{"text/plain"} }
func (log) ProducesObject(string) any                       { return "" }
func (log) Get(context.Context, string, runtime.Object) (runtime.Object, error) {
	panic(neverServed)
}

// connecter is a subresource for connections.
type connecter struct {
	base
	options func() runtime.Object
	methods []string
	subpath bool
}

func (c connecter) NewConnectOptions() (runtime.Object, bool, string) {
	return c.options(), c.subpath, "path"
}
func (c connecter) ConnectMethods() []string { return c.methods }
func (connecter) Connect(context.Context, string, runtime.Object, rest.Responder) (http.Handler, error) {
	panic(neverServed)
}
