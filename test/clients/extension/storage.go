package extension

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// storage stores apples in memory. It implements a resource of k8s.io/apiserver
// with the verbs create, get, list, update, watch and delete.
type storage struct {
	rest.TableConvertor
	// creator is called with the user and groups of each create request.
	creator func(user string, groups []string)

	mu       sync.Mutex // guards the following
	revision int
	apples   map[types.NamespacedName]*Apple
	watchers *watch.Broadcaster
}

func newStorage(creator func(user string, groups []string)) *storage {
	return &storage{
		TableConvertor: rest.NewDefaultTableConvertor(groupVersion.WithResource("apples").GroupResource()),
		creator:        creator, apples: map[types.NamespacedName]*Apple{}, watchers: watch.NewBroadcaster(100, watch.WaitIfChannelFull),
	}
}

func (s *storage) New() runtime.Object     { return &Apple{} }
func (s *storage) NewList() runtime.Object { return &AppleList{} }
func (s *storage) Destroy()                {}
func (s *storage) NamespaceScoped() bool   { return true }
func (s *storage) GetSingularName() string { return "apple" }

func key(ctx context.Context, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: request.NamespaceValue(ctx), Name: name}
}

func notFound(name string) error {
	return apierrors.NewNotFound(groupVersion.WithResource("apples").GroupResource(), name)
}

func (s *storage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.apples[key(ctx, name)]
	if a == nil {
		return nil, notFound(name)
	}
	return a.DeepCopyObject(), nil
}

func (s *storage) List(ctx context.Context, _ *internalversion.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &AppleList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revision)}, Items: []Apple{}}
	in := request.NamespaceValue(ctx)
	for _, k := range slices.SortedFunc(maps.Keys(s.apples), func(a, b types.NamespacedName) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	}) {
		if in == "" || in == k.Namespace {
			list.Items = append(list.Items, *s.apples[k].DeepCopyObject().(*Apple))
		}
	}
	return list, nil
}

func (s *storage) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if err := validate(ctx, obj); err != nil {
		return nil, err
	}
	if u, ok := request.UserFrom(ctx); ok && s.creator != nil {
		s.creator(u.GetName(), u.GetGroups())
	}
	a := obj.DeepCopyObject().(*Apple)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key(ctx, a.Name)
	if s.apples[k] != nil {
		return nil, apierrors.NewAlreadyExists(groupVersion.WithResource("apples").GroupResource(), a.Name)
	}
	a.Namespace, a.UID, a.CreationTimestamp = k.Namespace, uuid.NewUUID(), metav1.NewTime(time.Now().Truncate(time.Second))
	return s.store(k, a, watch.Added)
}

// store stores an apple at the next revision. Callers hold mu.
func (s *storage) store(k types.NamespacedName, a *Apple, event watch.EventType) (runtime.Object, error) {
	s.revision++
	a.ResourceVersion = strconv.Itoa(s.revision)
	s.apples[k] = a
	return a.DeepCopyObject(), s.watchers.Action(event, a.DeepCopyObject())
}

func (s *storage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, validate rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions) (runtime.Object, bool, error) {
	old, err := s.Get(ctx, name, nil)
	if err != nil {
		return nil, false, err
	}
	next, err := info.UpdatedObject(ctx, old)
	if err != nil {
		return nil, false, err
	}
	if err := validate(ctx, next, old); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, err := s.store(key(ctx, name), next.(*Apple), watch.Modified)
	return stored, false, err
}

func (s *storage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, _ *metav1.DeleteOptions) (runtime.Object, bool, error) {
	old, err := s.Get(ctx, name, nil)
	if err != nil {
		return nil, false, err
	}
	if err := validate(ctx, old); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.apples, key(ctx, name))
	s.revision++
	return old, true, s.watchers.Action(watch.Deleted, old)
}

func (s *storage) Watch(_ context.Context, _ *internalversion.ListOptions) (watch.Interface, error) {
	return s.watchers.Watch()
}
