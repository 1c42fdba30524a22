// Package rootca is the root CA certificate publisher. It publishes the cluster's
// certificate authority in the ConfigMap kube-root-ca.crt of every namespace,
// which pods mount to verify the API server.
package rootca

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	counted := newCounts()
	return controller.Descriptor{
		Name:           "root-ca-certificate-publisher-controller",
		Aliases:        []string{"root-ca-cert-publisher"},
		ServiceAccount: "root-ca-cert-publisher",
		EventSource:    "root-ca-cert-publisher",
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, counted) },
	}
}

// Name, key and annotation of the published ConfigMap.
const (
	name           = "kube-root-ca.crt"
	key            = "ca.crt"
	annotation     = "kubernetes.io/description"
	annotationText = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

type publisher struct {
	env        *controller.Env
	kube       kubernetes.Interface
	configMaps corelisters.ConfigMapLister
	bundle     string
	counts     *counts
	queue      *controller.Queue[string]
}

// newController builds the controller. Without --root-ca-file, it publishes the
// authorities that the controller's own client trusts, if there are any.
func newController(env *controller.Env, counted *counts) (controller.Controller, error) {
	if err := env.Expose(counted.syncs, counted.duration); err != nil {
		return nil, err
	}
	bundle := env.RootCA
	if len(bundle) == 0 && env.Client.Config != nil {
		bundle = env.Client.Config.CAData
	}
	if len(bundle) == 0 {
		return controller.Func(func(ctx context.Context) error {
			klog.FromContext(ctx).Info("No certificate authority to publish; set --root-ca-file")
			<-ctx.Done()
			return nil
		}), nil
	}
	core := env.Client.Informers.Core().V1()
	c := &publisher{
		env:        env,
		kube:       env.Client.Kubernetes,
		configMaps: core.ConfigMaps().Lister(),
		bundle:     string(bundle),
		counts:     counted,
	}
	c.queue = controller.NewQueue(env.Queues, "root_ca_cert_publisher", controller.Existing[string](core.Namespaces().Informer(), c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *publisher) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Namespaces().Informer(), func(_, namespace *v1.Namespace) {
			if namespace != nil {
				c.queue.Add(namespace.Name)
			}
		}),
		controller.On(core.ConfigMaps().Informer(), func(old, _ *v1.ConfigMap) {
			if old != nil && old.Name == name {
				c.queue.Add(old.Namespace)
			}
		}),
	}, c.queue.Workers(1))
}

func (c *publisher) sync(ctx context.Context, ns *v1.Namespace) (err error) {
	begin := time.Now()
	defer func() { c.counts.synced(err, time.Since(begin)) }()
	if ns.Status.Phase == v1.NamespaceTerminating {
		return nil
	}
	namespace := ns.Name
	have, err := c.configMaps.ConfigMaps(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.kube.CoreV1().ConfigMaps(namespace).Create(ctx, desired(nil, namespace, c.bundle), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			return nil
		}
	case err == nil:
		if want := desired(have, namespace, c.bundle); !published(have, want) {
			_, err = c.kube.CoreV1().ConfigMaps(namespace).Update(ctx, want, metav1.UpdateOptions{})
		}
	}
	return err
}

// desired returns the ConfigMap with the bundle. It keeps the metadata of the
// existing one, which may be nil.
func desired(have *v1.ConfigMap, namespace, bundle string) *v1.ConfigMap {
	want := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if have != nil {
		want.ObjectMeta = *have.ObjectMeta.DeepCopy()
	}
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[annotation] = annotationText
	want.Data = map[string]string{key: bundle}
	return want
}

func published(have, want *v1.ConfigMap) bool {
	return maps.Equal(have.Data, want.Data) && len(have.BinaryData) == 0 && have.Annotations[annotation] == annotationText
}
