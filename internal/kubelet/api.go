package kubelet

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/kubelet/image"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
)

// services returns a function that lists the Services of the cluster. With wait
// it first waits until they have been read.
func services(c *client.Client) func(ctx context.Context, wait bool) ([]*v1.Service, error) {
	all := c.Informers.Core().V1().Services()
	lister, synced := all.Lister(), all.Informer().HasSynced
	return func(ctx context.Context, wait bool) ([]*v1.Service, error) {
		if wait && !cache.WaitForCacheSync(ctx.Done(), synced) {
			return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
		}
		return lister.List(labels.Everything())
	}
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
