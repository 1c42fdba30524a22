// Package object reads the config maps and secrets that pods refer to. It
// watches each by name while a pod needs it, so that changes reach the pods at
// once. Pods select cluster trust bundles by signer, so all of them are watched
// together. The package corresponds to upstream's config map and secret managers.
package object

import (
	"context"
	"sync"

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

// Store reads the objects that the pods of a node refer to. Its methods may be
// called from any goroutine.
type Store struct {
	client  *client.Client
	watch   bool
	changed func(uid types.UID)

	mu      sync.Mutex      // guards what follows
	ctx     context.Context //nolint:containedctx // set by Start; ends the watches
	entries map[key]*entry
	pods    map[types.UID]map[key]bool
}

// key identifies a watched object. Without a name it is all objects of the
// resource.
type key struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// entry is one watch, with the pods that need it.
type entry struct {
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	pods     map[types.UID]bool
}

// New returns a Store. It calls changed with the UID of each pod that refers to
// an object that was created, updated or deleted. Without watch, objects are
// read from the API server each time.
func New(c *client.Client, watch bool, changed func(uid types.UID)) *Store {
	return &Store{client: c, watch: watch, changed: changed, entries: map[key]*entry{}, pods: map[types.UID]map[key]bool{}}
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
	s.set(pod.UID, references(pod))
}

// Forget ends the watches that no other pod needs.
func (s *Store) Forget(uid types.UID) { s.set(uid, nil) }

func (s *Store) set(uid types.UID, wanted map[key]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.watch || s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	for k := range wanted {
		e := s.entries[k]
		if e == nil {
			e = s.open(k)
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
			e.cancel()
			delete(s.entries, k)
		}
	}
	if len(wanted) == 0 {
		delete(s.pods, uid)
	} else {
		s.pods[uid] = wanted
	}
}

// open starts a watch. s.mu is held.
func (s *Store) open(k key) *entry {
	ctx, cancel := context.WithCancel(s.ctx)
	e := &entry{cancel: cancel, pods: map[types.UID]bool{}}
	selector := fields.Everything()
	if k.name != "" {
		selector = fields.OneTermEqualSelector(metav1.ObjectNameField, k.name)
	}
	e.informer = s.client.Watch(k.resource, k.namespace, selector)
	notify := func() {
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
	_, err := client.Follow(ctx, e.informer, cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial {
				notify()
			}
		},
		UpdateFunc: func(before, after any) {
			if before.(metav1.Object).GetResourceVersion() != after.(metav1.Object).GetResourceVersion() {
				notify()
			}
		},
		DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Watching an object of a pod failed, it is read from the API server each time", "resource", k.resource.Resource, "object", klog.KRef(k.namespace, k.name))
	}
	s.entries[k] = e
	return e
}

// cached returns an object of a watch that has synced.
func (s *Store) cached(k key) (any, bool) {
	s.mu.Lock()
	e := s.entries[k]
	s.mu.Unlock()
	if e == nil || !e.informer.HasSynced() {
		return nil, false
	}
	object, ok, err := e.informer.GetStore().GetByKey(k.namespace + "/" + k.name)
	return object, ok && err == nil
}

// ConfigMap implements spec.Objects.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if object, ok := s.cached(configMap(namespace, name)); ok {
		return object.(*v1.ConfigMap), nil
	}
	object, err := s.client.Kubernetes.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	return object, s.missing(err, configMap(namespace, name), "configmap")
}

// Secret implements spec.Objects.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if object, ok := s.cached(secret(namespace, name)); ok {
		return object.(*v1.Secret), nil
	}
	object, err := s.client.Kubernetes.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	return object, s.missing(err, secret(namespace, name), "secret")
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
	s.mu.Lock()
	e := s.entries[k]
	s.mu.Unlock()
	if e == nil || !e.informer.HasSynced() {
		return false
	}
	_, ok, err := e.informer.GetStore().GetByKey(k.namespace + "/" + k.name)
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
	s.mu.Lock()
	e := s.entries[allBundles()]
	s.mu.Unlock()
	if e != nil && e.informer.HasSynced() {
		var out []*certificatesv1.ClusterTrustBundle
		for _, object := range e.informer.GetStore().List() {
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

// references returns the keys of the objects that a pod refers to.
func references(pod *v1.Pod) map[key]bool {
	out := map[key]bool{}
	add := func(kind func(namespace, name string) key, name string) {
		if name != "" {
			out[kind(pod.Namespace, name)] = true
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(secret, s.Name)
	}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.ConfigMap != nil {
			add(configMap, vol.ConfigMap.Name)
		}
		if vol.Secret != nil {
			add(secret, vol.Secret.SecretName)
		}
		if vol.Projected != nil {
			for _, source := range vol.Projected.Sources {
				if source.ConfigMap != nil {
					add(configMap, source.ConfigMap.Name)
				}
				if source.Secret != nil {
					add(secret, source.Secret.Name)
				}
				if source.ClusterTrustBundle != nil {
					out[allBundles()] = true
				}
			}
		}
	}
	containers := func(list []v1.Container) {
		for i := range list {
			for _, from := range list[i].EnvFrom {
				if from.ConfigMapRef != nil {
					add(configMap, from.ConfigMapRef.Name)
				}
				if from.SecretRef != nil {
					add(secret, from.SecretRef.Name)
				}
			}
			for _, env := range list[i].Env {
				if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
					add(configMap, env.ValueFrom.ConfigMapKeyRef.Name)
				}
				if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
					add(secret, env.ValueFrom.SecretKeyRef.Name)
				}
			}
		}
	}
	containers(pod.Spec.InitContainers)
	containers(pod.Spec.Containers)
	return out
}
