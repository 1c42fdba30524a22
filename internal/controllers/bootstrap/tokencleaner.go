// Package bootstrap has the controllers of bootstrap tokens, which are secrets of
// type bootstrap.kubernetes.io/token in kube-system: the token cleaner deletes
// those that have expired, and the bootstrap signer lets a node that has only a
// token trust the ConfigMap cluster-info.
package bootstrap

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/controller"
)

// TokenCleaner describes the token cleaner.
func TokenCleaner() controller.Descriptor {
	return controller.Descriptor{
		Name:           "token-cleaner-controller",
		Aliases:        []string{"tokencleaner"},
		ServiceAccount: "token-cleaner",
		EventSource:    "token-cleaner",
		OffByDefault:   true,
		New:            newCleaner,
	}
}

type cleaner struct {
	env     *controller.Env
	secrets corelisters.SecretLister
	queue   *controller.Queue[string]
}

func newCleaner(env *controller.Env) (controller.Controller, error) {
	c := &cleaner{env: env, secrets: env.Client.Informers.Core().V1().Secrets().Lister()}
	c.queue = controller.NewQueue(env.Queues, "token_cleaner", c.sync)
	return c, nil
}

// Run implements controller.Controller.
func (c *cleaner) Run(ctx context.Context) error {
	return controller.Serve(ctx, []controller.Source{
		controller.On(c.env.Client.Informers.Core().V1().Secrets().Informer(), func(_, s *v1.Secret) {
			if s != nil && s.Namespace == metav1.NamespaceSystem && s.Type == v1.SecretTypeBootstrapToken {
				c.queue.Add(s.Name)
			}
		}),
	}, c.queue.Workers(1))
}

func (c *cleaner) sync(ctx context.Context, name string) error {
	secret, err := c.secrets.Secrets(metav1.NamespaceSystem).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	left, expires := expiresIn(secret, time.Now())
	switch {
	case !expires:
		return nil
	case left > 0:
		c.queue.AddAfter(name, left)
		return nil
	}
	klog.FromContext(ctx).V(3).Info("Deleting expired secret", "secret", klog.KObj(secret))
	err = c.env.Client.Kubernetes.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the token %s: %w", name, err)
	}
	return nil
}

// expiresIn returns the time until a token expires. expires is false for a token
// without an expiration time. A token with a malformed time has expired.
func expiresIn(secret *v1.Secret, now time.Time) (left time.Duration, expires bool) {
	text := string(secret.Data[bootstraptoken.ExpirationKey])
	if text == "" {
		return 0, false
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, true
	}
	return at.Sub(now), true
}
