package kubelet

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
)

// serviceView has the Services of the cluster, as far as environment variables show
// them.
type serviceView struct{ informer cache.SharedIndexInformer }

func newServiceView(c *client.Client) *serviceView {
	return &serviceView{c.WatchReduced(v1.SchemeGroupVersion.WithResource("services"), metav1.NamespaceAll, fields.Everything(), reduceService)}
}

// list returns the Services that pods of a namespace have variables of: those of the
// namespace, and kubernetes of default. With wait it first waits until all Services
// have been read.
func (v *serviceView) list(ctx context.Context, namespace string, wait bool) ([]*v1.Service, error) {
	if wait && !cache.WaitForCacheSync(ctx.Done(), v.informer.HasSynced) {
		return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
	}
	lister := corelisters.NewServiceLister(v.informer.GetIndexer())
	found, err := lister.Services(namespace).List(labels.Everything())
	if err != nil || namespace == metav1.NamespaceDefault {
		return found, err
	}
	if api, err := lister.Services(metav1.NamespaceDefault).Get("kubernetes"); err == nil { // else there is none
		found = append(found, api)
	}
	return found, nil
}

// reduceService returns what environment variables show of a Service: each node keeps
// that of all Services of the cluster. It returns other objects as they are.
func reduceService(obj any) (any, error) {
	s, ok := obj.(*v1.Service)
	if !ok {
		return obj, nil
	}
	out := &v1.Service{
		ObjectMeta: client.Identity(s),
		Spec:       v1.ServiceSpec{ClusterIP: s.Spec.ClusterIP},
	}
	if !spec.HasVariables(s) {
		return out, nil
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		out.Spec.Ports = append(out.Spec.Ports, v1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	return out, nil
}

// runtimeHandler returns a function that reads the handler of a RuntimeClass.
func runtimeHandler(c kubernetes.Interface) func(ctx context.Context, class string) (string, error) {
	return func(ctx context.Context, name string) (string, error) {
		class, err := c.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("failed to get runtime class %q: %w", name, err)
		}
		return class.Handler, nil
	}
}

// serviceAccount returns a function that returns the service account of a pod, nil
// for a static pod.
func serviceAccount(c kubernetes.Interface, tokens volume.Tokens) func(pod *v1.Pod) *image.Account {
	const tokenSeconds = 60 * 60
	return func(pod *v1.Pod) *image.Account {
		name := pod.Spec.ServiceAccountName
		if name == "" {
			return nil
		}
		return &image.Account{
			Get: func(ctx context.Context) (*v1.ServiceAccount, error) {
				return c.CoreV1().ServiceAccounts(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
			},
			Token: func(ctx context.Context, audience string) (string, error) {
				return tokens.Token(ctx, pod, audience, tokenSeconds)
			},
		}
	}
}
