// Package object reads the config maps and secrets that pods refer to. It
// watches each by name while a pod needs it, so that changes reach the pods at
// once. Pods select cluster trust bundles by signer, so all of them are watched
// together. The package corresponds to upstream's config map and secret managers.
//
// Each watch costs the node and the API server memory, and keeps the object. So
// there are bounds for a pod, and for all pods. An object without a watch is read
// from the API server whenever a pod needs it: a change of it reaches the pod with
// the next sync, and it cannot be read while the API server is away.
package object

import (
	"context"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/fairevict"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/supervise"
)

func configMap(namespace, name string) key {
	return key{v1.SchemeGroupVersion.WithResource("configmaps"), namespace, name}
}

func secret(namespace, name string) key {
	return key{v1.SchemeGroupVersion.WithResource("secrets"), namespace, name}
}

// allBundles is the key of all cluster trust bundles.
func allBundles() key {
	return key{resource: certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles")}
}

// Bounds of the watches.
const (
	// maxPodWatches is how many objects are watched for one pod: those of its
	// volumes first, then those of its environment, then its pull secrets.
	maxPodWatches = 128
	// maxWatches is how many objects are watched for all pods. Beyond that, the
	// oldest watch of the namespace with the most of them ends.
	maxWatches = 2048
	// maxKept is how many bytes all watches keep, and maxKeptShare divides the
	// memory of the process into what they keep at most. Beyond either, the watch
	// of the largest object ends, of the namespace whose objects take the most.
	maxKept      = 64 << 20
	maxKeptShare = 8
	// maxOpening is how many watches read their objects at a time.
	maxOpening = 16
	// maxOpenTime is how long one that is not answered counts among them.
	maxOpenTime = 10 * time.Second
)

// Memory is what the Store may use.
type Memory struct {
	Limit int64 // of the process, in bytes
	// Shortage returns why the process has no room for more objects; nil if it has.
	Shortage func() error
}

// Store reads the objects that the pods of a node refer to. Its methods may be
// called from any goroutine.
type Store struct {
	client  *client.Client
	watch   bool
	memory  Memory
	maxKept int // in bytes
	changed func(uid types.UID)

	mu      sync.Mutex      // guards what follows
	ctx     context.Context //nolint:containedctx // set by Start; ends the watches
	entries map[key]*entry
	watches fairevict.Set[string, *entry] // by namespace
	kept    map[string]int                // bytes that the watches of a namespace keep
	pods    map[types.UID]map[key]bool

	opening chan struct{} // has an element for each watch that reads its object
}

// key identifies a watched object. Without a name it is all objects of the
// resource.
type key struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// entry is one object, with the pods that need it, and its watch.
type entry struct {
	key  key
	pods map[types.UID]bool

	informer cache.SharedIndexInformer // nil: not watched
	cancel   context.CancelFunc
	place    *fairevict.Entry[string, *entry]
	size     int  // of what the watch keeps
	large    bool // not watched again, because it was too large
}

// New returns a Store. It calls changed with the UID of each pod that refers to
// an object that was created, updated or deleted. Without watch, objects are
// read from the API server each time.
func New(c *client.Client, watch bool, memory Memory, changed func(uid types.UID)) *Store {
	return &Store{
		client: c, watch: watch, memory: memory, maxKept: int(min(maxKept, memory.Limit/maxKeptShare)), changed: changed,
		entries: map[key]*entry{}, kept: map[string]int{}, pods: map[types.UID]map[key]bool{},
		opening: make(chan struct{}, maxOpening),
	}
}

// Start makes watches last until ctx ends. Register does nothing before Start.
func (s *Store) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
}

// Register watches the objects that the pod refers to, and no longer those that
// only its earlier versions referred to.
func (s *Store) Register(pod *v1.Pod) {
	references := spec.References(pod)
	wanted := make([]key, 0, min(len(references), maxPodWatches))
	for _, r := range references[:min(len(references), maxPodWatches)] {
		wanted = append(wanted, keyOf(pod.Namespace, r))
	}
	s.set(pod.UID, wanted)
}

// keyOf returns the key of an object that a pod of the namespace refers to.
func keyOf(namespace string, r spec.Reference) key {
	switch r.Kind {
	case spec.SecretReference:
		return secret(namespace, r.Name)
	case spec.ConfigMapReference:
		return configMap(namespace, r.Name)
	}
	return allBundles()
}

// Forget ends the watches that no other pod needs.
func (s *Store) Forget(uid types.UID) { s.set(uid, nil) }

func (s *Store) set(uid types.UID, list []key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.watch || s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	wanted := make(map[key]bool, len(list))
	for _, k := range list {
		wanted[k] = true
		e := s.entries[k]
		if e == nil {
			e = &entry{key: k, pods: map[types.UID]bool{}}
			s.entries[k] = e
			s.open(e)
		} else if e.informer == nil && !e.large && s.watches.Len() < maxWatches {
			s.open(e)
		}
		e.pods[uid] = true
	}
	for k := range s.pods[uid] {
		if wanted[k] {
			continue
		}
		e := s.entries[k]
		delete(e.pods, uid)
		if len(e.pods) == 0 {
			s.close(e)
			delete(s.entries, k)
		}
	}
	if len(wanted) == 0 {
		delete(s.pods, uid)
	} else {
		s.pods[uid] = wanted
	}
}

// open starts a watch, and ends another one if there are too many. s.mu is held.
func (s *Store) open(e *entry) {
	ctx, cancel := context.WithCancel(s.ctx)
	e.cancel = cancel
	selector := fields.Everything()
	if e.key.name != "" {
		selector = fields.OneTermEqualSelector(metav1.ObjectNameField, e.key.name)
	}
	informer := s.client.Watch(e.key.resource, e.key.namespace, selector)
	e.informer, e.place = informer, s.watches.Add(e.key.namespace, e)
	if s.watches.Len() > maxWatches {
		s.close(s.watches.Victim().Member)
	}
	supervise.Go(ctx, func() { s.follow(ctx, e, informer) })
}

// close ends a watch. s.mu is held.
func (s *Store) close(e *entry) {
	if e.informer == nil {
		return
	}
	e.cancel()
	e.place.Remove()
	s.resize(e, 0)
	e.informer, e.place = nil, nil
}

// resize notes how much a watch keeps. s.mu is held.
func (s *Store) resize(e *entry, size int) {
	if s.kept[e.key.namespace] += size - e.size; s.kept[e.key.namespace] == 0 {
		delete(s.kept, e.key.namespace)
	}
	e.size = size
}

// follow runs a watch when it is its turn to read its object.
func (s *Store) follow(ctx context.Context, e *entry, informer cache.SharedIndexInformer) {
	select {
	case s.opening <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-s.opening }()
	synced, err := client.Follow(ctx, informer, cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			s.keep(e, informer, object)
			if !initial {
				s.notify(e)
			}
		},
		UpdateFunc: func(before, after any) {
			if before.(metav1.Object).GetResourceVersion() != after.(metav1.Object).GetResourceVersion() {
				s.keep(e, informer, after)
				s.notify(e)
			}
		},
		DeleteFunc: func(any) {
			s.keep(e, informer, nil)
			s.notify(e)
		},
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Watching an object of a pod failed, it is read from the API server each time", "resource", e.key.resource.Resource, "object", klog.KRef(e.key.namespace, e.key.name))
		return
	}
	open := time.NewTimer(maxOpenTime)
	defer open.Stop()
	select {
	case <-synced.Done():
	case <-open.C:
	case <-ctx.Done():
	}
}

// notify calls changed for the pods that need an object.
func (s *Store) notify(e *entry) {
	s.mu.Lock()
	var pods []types.UID
	for uid := range e.pods {
		pods = append(pods, uid)
	}
	s.mu.Unlock()
	for _, uid := range pods {
		s.changed(uid)
	}
}

// keep notes the size of an object that a watch has received, nil if it was
// deleted. It ends watches while all together keep too much.
func (s *Store) keep(e *entry, informer cache.SharedIndexInformer, object any) {
	size, ok := sizeOf(object)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.informer != informer {
		return // it has ended
	}
	s.resize(e, size)
	total := 0
	for _, bytes := range s.kept {
		total += bytes
	}
	for total > s.maxKept {
		largest := s.largest()
		total -= largest.size
		s.close(largest)
		largest.large = true
	}
}

// largest returns the largest object of the namespace whose objects take the most.
// s.mu is held.
func (s *Store) largest() *entry {
	most := ""
	for namespace, bytes := range s.kept {
		if bytes > s.kept[most] {
			most = namespace
		}
	}
	var found *entry
	for _, e := range s.entries {
		if e.key.namespace == most && (found == nil || e.size > found.size) {
			found = e
		}
	}
	return found
}

// sizeOf returns the size of an object. ok is false for objects that pods do not
// create.
func sizeOf(object any) (size int, ok bool) {
	switch o := object.(type) {
	case *v1.Secret:
		return textSize(o.Annotations) + textSize(o.Data), true
	case *v1.ConfigMap:
		return textSize(o.Annotations) + textSize(o.Data) + textSize(o.BinaryData), true
	case nil:
		return 0, true
	}
	return 0, false
}

func textSize[T string | []byte](m map[string]T) (size int) {
	for k, v := range m {
		size += len(k) + len(v)
	}
	return size
}

// synced returns the informer of an object whose watch has synced, nil if there is
// none.
func (s *Store) synced(k key) cache.SharedIndexInformer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[k]; e != nil && e.informer != nil && e.informer.HasSynced() {
		return e.informer
	}
	return nil
}

// cached returns an object of a watch that has synced.
func (s *Store) cached(k key) (any, bool) {
	informer := s.synced(k)
	if informer == nil {
		return nil, false
	}
	object, ok, err := informer.GetStore().GetByKey(k.namespace + "/" + k.name)
	return object, ok && err == nil
}

// ConfigMap implements spec.Objects.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if object, ok := s.cached(configMap(namespace, name)); ok {
		return object.(*v1.ConfigMap), nil
	}
	if err := s.shortage(configMap(namespace, name)); err != nil {
		return nil, err
	}
	object, err := s.client.Kubernetes.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	return object, s.missing(err, configMap(namespace, name), "configmap")
}

// Secret implements spec.Objects.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if object, ok := s.cached(secret(namespace, name)); ok {
		return object.(*v1.Secret), nil
	}
	if err := s.shortage(secret(namespace, name)); err != nil {
		return nil, err
	}
	object, err := s.client.Kubernetes.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	return object, s.missing(err, secret(namespace, name), "secret")
}

// shortage returns an error if the process has no memory for an object that no watch
// keeps.
func (s *Store) shortage(k key) error {
	if err := s.memory.Shortage(); err != nil {
		return fmt.Errorf("%s %q is not read, because the kubelet has no memory for it: %w", k.resource.Resource, k.name, err)
	}
	return nil
}

// Kept returns how many bytes are kept for a pod: of an object that several pods
// need, an equal part.
func (s *Store) Kept(uid types.UID) (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.pods[uid] {
		e := s.entries[k]
		bytes += int64(e.size / len(e.pods))
	}
	return bytes
}

// missing makes a NotFound error name the kind in the singular, as upstream's
// kubelet does in its messages. While the API server is away, an object that
// its watch has not found is missing.
func (s *Store) missing(err error, k key, kind string) error {
	if apierrors.IsNotFound(err) || err != nil && s.absent(k) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, k.name)
	}
	return err
}

// absent reports whether the object has a watch that has synced without it.
func (s *Store) absent(k key) bool {
	informer := s.synced(k)
	if informer == nil {
		return false
	}
	_, ok, err := informer.GetStore().GetByKey(k.namespace + "/" + k.name)
	return err == nil && !ok
}

// Claim implements volume.Claims.
func (s *Store) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return s.client.Kubernetes.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// PersistentVolume implements volume.Claims.
func (s *Store) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return s.client.Kubernetes.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// TrustBundles implements volume.TrustBundles.
func (s *Store) TrustBundles(ctx context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	if informer := s.synced(allBundles()); informer != nil {
		var out []*certificatesv1.ClusterTrustBundle
		for _, object := range informer.GetStore().List() {
			out = append(out, object.(*certificatesv1.ClusterTrustBundle))
		}
		return out, nil
	}
	list, err := s.client.Kubernetes.CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := make([]*certificatesv1.ClusterTrustBundle, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}
