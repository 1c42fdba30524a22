// Package object gives the kubelet the config maps and secrets that its pods
// refer to, each watched by name while some pod needs it, so that a change
// reaches the pods at once. Trust bundles, which pods select by their signers,
// are watched all together. It stands for upstream's config map and secret
// managers.
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

var (
	configMaps = v1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = v1.SchemeGroupVersion.WithResource("secrets")
	bundles    = certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles")
)

// Store holds the objects of a node's pods. Its methods may be called from
// any goroutine.
type Store struct {
	client  *client.Client
	watch   bool
	changed func(uid types.UID)

	mu      sync.Mutex      // guards what follows
	ctx     context.Context //nolint:containedctx // set by Start, ends the watches
	entries map[key]*entry
	pods    map[types.UID]map[key]bool
}

type key struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// allBundles stands for all trust bundles.
var allBundles = key{resource: bundles}

type entry struct {
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	pods     map[types.UID]bool
}

// New returns a Store that reports to changed which pods refer to an object
// that was created, updated or deleted. Without watch, objects are read from
// the API server each time.
func New(c *client.Client, watch bool, changed func(uid types.UID)) *Store {
	return &Store{client: c, watch: watch, changed: changed, entries: map[key]*entry{}, pods: map[types.UID]map[key]bool{}}
}

// Start makes the watches live as long as ctx, and part of the component that
// it belongs to. It comes before Register.
func (s *Store) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
}

// Register watches what the pod refers to, in place of what it referred to before.
func (s *Store) Register(pod *v1.Pod) {
	s.set(pod.UID, references(pod))
}

// Forget ends what is watched for the pod alone.
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

// open is called with the lock held.
func (s *Store) open(k key) *entry {
	ctx, cancel := context.WithCancel(s.ctx)
	e := &entry{cancel: cancel, pods: map[types.UID]bool{}}
	selector := fields.Everything()
	if k.name != "" {
		selector = fields.OneTermEqualSelector(metav1.ObjectNameField, k.name)
	}
	e.informer = s.client.Watch(k.resource, k.namespace, selector)
	tell := func() {
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
				tell()
			}
		},
		UpdateFunc: func(before, after any) {
			if before.(metav1.Object).GetResourceVersion() != after.(metav1.Object).GetResourceVersion() {
				tell()
			}
		},
		DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Watching what a pod refers to failed, it is read each time", "resource", k.resource.Resource, "object", klog.KRef(k.namespace, k.name))
	}
	s.entries[k] = e
	return e
}

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
	if object, ok := s.cached(key{configMaps, namespace, name}); ok {
		return object.(*v1.ConfigMap), nil
	}
	object, err := s.client.Kubernetes.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	return object, missing(err, "configmap", name)
}

// Secret implements spec.Objects.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if object, ok := s.cached(key{secrets, namespace, name}); ok {
		return object.(*v1.Secret), nil
	}
	object, err := s.client.Kubernetes.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	return object, missing(err, "secret", name)
}

// missing says of an object that is not there what users know from a kubelet:
// the singular of its kind.
func missing(err error, kind, name string) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	return err
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
	e := s.entries[allBundles]
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

// references are the objects to watch for what is in a pod's specification.
func references(pod *v1.Pod) map[key]bool {
	out := map[key]bool{}
	add := func(resource schema.GroupVersionResource, name string) {
		if name != "" {
			out[key{resource, pod.Namespace, name}] = true
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(secrets, s.Name)
	}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.ConfigMap != nil {
			add(configMaps, vol.ConfigMap.Name)
		}
		if vol.Secret != nil {
			add(secrets, vol.Secret.SecretName)
		}
		if vol.Projected != nil {
			for _, source := range vol.Projected.Sources {
				if source.ConfigMap != nil {
					add(configMaps, source.ConfigMap.Name)
				}
				if source.Secret != nil {
					add(secrets, source.Secret.Name)
				}
				if source.ClusterTrustBundle != nil {
					out[allBundles] = true
				}
			}
		}
	}
	containers := func(list []v1.Container) {
		for i := range list {
			for _, from := range list[i].EnvFrom {
				if from.ConfigMapRef != nil {
					add(configMaps, from.ConfigMapRef.Name)
				}
				if from.SecretRef != nil {
					add(secrets, from.SecretRef.Name)
				}
			}
			for _, env := range list[i].Env {
				if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
					add(configMaps, env.ValueFrom.ConfigMapKeyRef.Name)
				}
				if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
					add(secrets, env.ValueFrom.SecretKeyRef.Name)
				}
			}
		}
	}
	containers(pod.Spec.InitContainers)
	containers(pod.Spec.Containers)
	return out
}
