package kubelet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet/cgroup"
	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/files/filestest"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/supervise"
)

const nodeName = "alpha"

// bench is a kubelet on a runtime in memory, with an API server in memory.
type bench struct {
	t       *testing.T
	api     kubernetes.Interface
	runtime *inmemorytest.Runtime
	files   *files.Memory
	groups  *cgroup.Memory
	stop    func()
	group   *supervise.Group // of the kubelet
	kubelet *Kubelet

	configure func(*Config) // changes what start starts; may be nil
}

// newBench returns a bench without objects. Its API server does not keep managed
// fields, which nothing of a kubelet reads and which take a mapping of all kinds to be
// built at each write.
func newBench(t *testing.T) *bench {
	return &bench{t: t, api: clientfake.NewSimpleClientset(), runtime: inmemorytest.New(), files: &files.Memory{}, groups: &cgroup.Memory{}}
}

// watcher makes informers that filter as the API server would.
func watcher(api kubernetes.Interface) func(schema.GroupVersionResource, string, fields.Selector) cache.SharedIndexInformer {
	return func(gvr schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
		lw := &cache.ListWatch{}
		var kind runtime.Object
		name, _ := selector.RequiresExactMatch("metadata.name")
		switch gvr.Resource {
		case "pods":
			kind = &v1.Pod{}
			lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return api.CoreV1().Pods(namespace).List(ctx, o)
			}
			lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return api.CoreV1().Pods(namespace).Watch(ctx, o)
			}
		case "nodes":
			kind = &v1.Node{}
			lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return api.CoreV1().Nodes().List(ctx, o)
			}
			lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return api.CoreV1().Nodes().Watch(ctx, o)
			}
		case "services":
			kind = &v1.Service{}
			lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return api.CoreV1().Services(namespace).List(ctx, o)
			}
			lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return api.CoreV1().Services(namespace).Watch(ctx, o)
			}
		case "configmaps":
			kind = &v1.ConfigMap{}
			lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := api.CoreV1().ConfigMaps(namespace).List(ctx, o)
				for i := len(list.Items) - 1; i >= 0; i-- {
					if list.Items[i].Name != name {
						list.Items = append(list.Items[:i], list.Items[i+1:]...)
					}
				}
				return list, err
			}
			lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return api.CoreV1().ConfigMaps(namespace).Watch(ctx, o)
			}
		case "clustertrustbundles":
			kind = &certificatesv1.ClusterTrustBundle{}
			lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return api.CertificatesV1().ClusterTrustBundles().List(ctx, o)
			}
			lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return api.CertificatesV1().ClusterTrustBundles().Watch(ctx, o)
			}
		case "secrets":
			kind = &v1.Secret{}
			lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return api.CoreV1().Secrets(namespace).List(ctx, o)
			}
			lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return api.CoreV1().Secrets(namespace).Watch(ctx, o)
			}
		}
		return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, api), kind, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
}

// run calls f with a bench inside a bubble of virtual time.
func run(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		defer func() { b.stop() }()
		f(t, b)
	})
}

// start starts a kubelet with the existing runtime and files.
func (b *bench) start() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	shared := client.NewInformers(b.api)
	off := false
	config := Config{
		NodeName: nodeName, NodeIPs: []string{"192.0.2.1"}, RootDirectory: "/var/lib/kubelet",
		Client:  &client.Client{Kubernetes: b.api, Informers: shared, Watch: watcher(b.api)},
		Runtime: b.runtime, Images: b.runtime.Images(), Files: b.files, Mounter: b.files, Groups: b.groups, WithoutSockets: true,
		Machine: &node.Fixed{Resources: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110")}},
	}
	config.Configuration.EnableServer = &off
	config.Configuration.StaticPodPath = "/etc/kubernetes/manifests"
	if b.configure != nil {
		b.configure(&config)
	}
	k, err := New(config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.kubelet = k
	var wg sync.WaitGroup
	wg.Go(func() { _ = shared.Run(ctx) })
	b.group = supervise.NewGroup(supervise.Options{})
	b.group.Go(ctx, "kubelet", func(ctx context.Context) error {
		err := k.Run(ctx)
		if err != nil && !errors.Is(err, filestest.ErrKilled) {
			b.t.Error(err)
		}
		return err
	})
	b.stop = func() {
		cancel()
		wg.Wait()
		b.group.Wait()
	}
	synctest.Wait()
}

// pod is the smallest pod bound to the node.
func pod(name string, change ...func(p *v1.Pod)) *v1.Pod {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			NodeName: nodeName, RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{Name: "main", Image: "example.com/app:1", ImagePullPolicy: v1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log"}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func (b *bench) create(p *v1.Pod) {
	b.t.Helper()
	if _, err := b.api.CoreV1().Pods(p.Namespace).Create(b.t.Context(), p, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// get returns the pod, nil if there is none.
func (b *bench) get(name string) *v1.Pod {
	p, err := b.api.CoreV1().Pods("default").Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

// delete marks the pod as the API server does.
func (b *bench) delete(name string, grace int64) {
	b.t.Helper()
	p := b.get(name).DeepCopy()
	now := metav1.Now()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	if _, err := b.api.CoreV1().Pods("default").Update(b.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// after lets time pass.
func (b *bench) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) containers() []string {
	var ids []string
	list, _ := b.runtime.ListContainers(b.t.Context(), nil)
	for _, c := range list {
		ids = append(ids, c.GetId())
	}
	return ids
}

func conditionOf(p *v1.Pod, t v1.PodConditionType) v1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }
