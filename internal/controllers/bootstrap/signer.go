package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/controller"
)

// Signer describes the bootstrap signer.
func Signer() controller.Descriptor {
	return controller.Descriptor{
		Name:           "bootstrap-signer-controller",
		Aliases:        []string{"bootstrapsigner"},
		ServiceAccount: "bootstrap-signer",
		EventSource:    "bootstrap-signer",
		OffByDefault:   true,
		New:            newSigner,
	}
}

type signer struct {
	env        *controller.Env
	secrets    corelisters.SecretLister
	configMaps corelisters.ConfigMapLister
	queue      *controller.Queue[controller.Key]
}

func newSigner(env *controller.Env) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	c := &signer{env: env, secrets: core.Secrets().Lister(), configMaps: core.ConfigMaps().Lister()}
	c.queue = controller.NewQueue(env.Queues, "bootstrap_signer_queue", c.sync)
	return c, nil
}

// Run implements controller.Controller.
func (c *signer) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	info := controller.Key{Namespace: metav1.NamespacePublic, Name: bootstraptoken.ClusterInfo}
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Secrets().Informer(), func(old, new *v1.Secret) {
			if isToken(old) || isToken(new) {
				c.queue.Add(info)
			}
		}),
		controller.On(core.ConfigMaps().Informer(), func(_, m *v1.ConfigMap) {
			if m != nil && m.Namespace == metav1.NamespacePublic && m.Name == bootstraptoken.ClusterInfo {
				c.queue.Add(info)
			}
		}),
	}, c.queue.Workers(1))
}

func isToken(s *v1.Secret) bool {
	return s != nil && s.Namespace == metav1.NamespaceSystem && s.Type == v1.SecretTypeBootstrapToken
}

// sync gives the ConfigMap one signature for each token that signs, and no others.
func (c *signer) sync(ctx context.Context, key controller.Key) error {
	info, err := c.configMaps.ConfigMaps(key.Namespace).Get(key.Name)
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	content, ok := info.Data[bootstraptoken.ClusterInfoKey]
	if !ok {
		return nil
	}
	signatures, err := c.signatures(key, content)
	if err != nil {
		return err
	}
	next := info.DeepCopy()
	maps.DeleteFunc(next.Data, func(key, _ string) bool { return strings.HasPrefix(key, bootstraptoken.SignaturePrefix) })
	maps.Copy(next.Data, signatures)
	if maps.Equal(next.Data, info.Data) {
		return nil
	}
	if _, err := c.env.Client.Kubernetes.CoreV1().ConfigMaps(next.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("signing the ConfigMap %s: %w", key, err)
	}
	return nil
}

// signatures returns the signatures of content by their keys in the ConfigMap. It
// enqueues key for the time when a token expires.
func (c *signer) signatures(key controller.Key, content string) (map[string]string, error) {
	secrets, err := c.secrets.Secrets(metav1.NamespaceSystem).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	signatures := map[string]string{}
	for _, s := range secrets {
		id, secret := string(s.Data[bootstraptoken.IDKey]), s.Data[bootstraptoken.SecretKey]
		if !isToken(s) || s.Name != bootstraptoken.SecretPrefix+id || len(secret) == 0 || string(s.Data[bootstraptoken.UsagePrefix+bootstraptoken.Signing]) != "true" {
			continue
		}
		left, expires := expiresIn(s, time.Now())
		if expires && left <= 0 {
			continue
		}
		if expires {
			c.queue.AddAfter(key, left)
		}
		signatures[bootstraptoken.SignaturePrefix+id] = bootstraptoken.Token{ID: id, Secret: string(secret)}.Sign(content)
	}
	return signatures, nil
}
