// Package serviceaccount is the service account controller. It creates the service
// account "default" in every namespace.
package serviceaccount

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Name:           "serviceaccount-controller",
		Aliases:        []string{"serviceaccount"},
		ServiceAccount: "service-account-controller",
		EventSource:    "serviceaccount-controller",
		New:            newController,
	}
}

// name is the name of the service account.
const name = "default"

type accounts struct {
	env      *controller.Env
	kube     kubernetes.Interface
	accounts corelisters.ServiceAccountLister
	queue    *controller.Queue[string]
}

func newController(env *controller.Env) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	c := &accounts{
		env:      env,
		kube:     env.Client.Kubernetes,
		accounts: core.ServiceAccounts().Lister(),
	}
	c.queue = controller.NewQueue(env.Queues, "serviceaccount", controller.Existing[string](core.Namespaces().Informer(), c.sync))
	return c, nil
}

// Run implements controller.Controller.
func (c *accounts) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Namespaces().Informer(), func(_, namespace *v1.Namespace) {
			if namespace != nil {
				c.queue.Add(namespace.Name)
			}
		}),
		controller.On(core.ServiceAccounts().Informer(), func(old, new *v1.ServiceAccount) {
			if new == nil && old.Name == name {
				c.queue.Add(old.Namespace)
			}
		}),
	}, c.queue.Workers(1))
}

func (c *accounts) sync(ctx context.Context, namespace *v1.Namespace) error {
	if namespace.Status.Phase == v1.NamespaceTerminating {
		return nil
	}
	if _, err := c.accounts.ServiceAccounts(namespace.Name).Get(name); !apierrors.IsNotFound(err) {
		return err
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: name}}
	_, err := c.kube.CoreV1().ServiceAccounts(namespace.Name).Create(ctx, account, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
