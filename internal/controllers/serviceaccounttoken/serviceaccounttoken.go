// Package serviceaccounttoken fills the secrets of type
// kubernetes.io/service-account-token, which hold a token of a service account
// that never expires, and deletes them with their account.
package serviceaccounttoken

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller. It acts as the controller manager
// itself: it is what makes it possible to act as a service account at all.
func Descriptor(o *Options) controller.Descriptor {
	return controller.Descriptor{
		Name:        "serviceaccount-token-controller",
		Aliases:     []string{"serviceaccount-token"},
		EventSource: "serviceaccount-token-controller",
		AddFlags:    o.addFlags,
		New:         func(env *controller.Env) (controller.Controller, error) { return newController(env, o) },
	}
}

// Options are the options of the controller.
type Options struct {
	// PrivateKeyFile is the file of the key that signs tokens, PEM. "" signs
	// none.
	PrivateKeyFile string
	// ConcurrentSyncs is the number of secrets that are synced at once.
	ConcurrentSyncs int
}

// DefaultOptions returns upstream's defaults.
func DefaultOptions() Options { return Options{ConcurrentSyncs: 5} }

func (o *Options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.PrivateKeyFile, "service-account-private-key-file", o.PrivateKeyFile, "Filename containing a PEM-encoded private RSA or ECDSA key used to sign service account tokens.")
	controller.WorkersFlag(&o.ConcurrentSyncs, "concurrent-serviceaccount-token-syncs", "service account token objects")(fs)
}

type tokens struct {
	env      *controller.Env
	options  *Options
	accounts corelisters.ServiceAccountLister
	secrets  corelisters.SecretLister
	queue    *controller.Queue[controller.Key]
}

// newController builds the controller. Without --service-account-private-key-file there
// is nothing to sign with, and secrets stay as they are.
func newController(env *controller.Env, o *Options) (controller.Controller, error) {
	if o.PrivateKeyFile == "" {
		return controller.Func(func(ctx context.Context) error {
			klog.FromContext(ctx).Info("No key to sign service account tokens with; set --service-account-private-key-file")
			<-ctx.Done()
			return nil
		}), nil
	}
	core := env.Client.Informers.Core().V1()
	c := &tokens{env: env, options: o, accounts: core.ServiceAccounts().Lister(), secrets: core.Secrets().Lister()}
	c.queue = controller.NewQueue("serviceaccount_tokens_secret", c.sync)
	return c, nil
}

// Run implements controller.Controller.
func (c *tokens) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Secrets().Informer(), func(_, secret *v1.Secret) {
			if secret != nil && secret.Type == v1.SecretTypeServiceAccountToken {
				c.queue.Add(cache.MetaObjectToName(secret))
			}
		}),
		controller.On(core.ServiceAccounts().Informer(), c.accountChanged),
	}, c.queue.Workers(c.options.ConcurrentSyncs))
}

// accountChanged queues the secrets of an account that came or went.
func (c *tokens) accountChanged(old, new *v1.ServiceAccount) {
	account := cmp.Or(new, old)
	if old != nil && new != nil && old.UID == new.UID {
		return
	}
	secrets, err := c.secrets.Secrets(account.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, s := range secrets {
		if s.Type == v1.SecretTypeServiceAccountToken && s.Annotations[v1.ServiceAccountNameKey] == account.Name {
			c.queue.Add(cache.MetaObjectToName(s))
		}
	}
}

func (c *tokens) sync(ctx context.Context, key controller.Key) error {
	secret, err := c.secrets.Secrets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil && (secret.Type != v1.SecretTypeServiceAccountToken || secret.DeletionTimestamp != nil) {
		return nil
	}
	if err != nil {
		return err
	}
	account, err := c.account(ctx, secret)
	if err != nil {
		return err
	}
	api := c.env.Client.Kubernetes.CoreV1().Secrets(key.Namespace)
	if account == nil {
		klog.FromContext(ctx).V(4).Info("Deleting the token of a service account that is gone", "secret", klog.KObj(secret))
		err := api.Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	next, err := c.filled(secret, account)
	if err != nil || next == nil {
		return err
	}
	if _, err := api.Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("filling the secret %s: %w", secret.Name, err)
	}
	return nil
}

// account returns the account that a secret is for; nil if it is gone. That
// it is gone is asked of the API server, because the answer deletes a secret.
func (c *tokens) account(ctx context.Context, secret *v1.Secret) (*v1.ServiceAccount, error) {
	name, uid := secret.Annotations[v1.ServiceAccountNameKey], secret.Annotations[v1.ServiceAccountUIDKey]
	fits := func(a *v1.ServiceAccount) bool { return uid == "" || uid == string(a.UID) }
	account, err := c.accounts.ServiceAccounts(secret.Namespace).Get(name)
	if err == nil && fits(account) {
		return account, nil
	}
	account, err = c.env.Client.Kubernetes.CoreV1().ServiceAccounts(secret.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && !fits(account):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for the service account %s: %w", name, err)
	}
	return account, nil
}

// filled is the secret with the account's UID, the token, the namespace and
// the authority to trust; nil if it has them.
func (c *tokens) filled(secret *v1.Secret, account *v1.ServiceAccount) (*v1.Secret, error) {
	ca := c.env.RootCA
	missing := len(secret.Data[v1.ServiceAccountTokenKey]) == 0
	if !missing && secret.Annotations[v1.ServiceAccountUIDKey] == string(account.UID) &&
		string(secret.Data[v1.ServiceAccountNamespaceKey]) == secret.Namespace &&
		(len(ca) == 0 || string(secret.Data[v1.ServiceAccountRootCAKey]) == string(ca)) {
		return nil, nil
	}
	next := secret.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	next.Annotations[v1.ServiceAccountUIDKey] = string(account.UID)
	next.Data[v1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	if len(ca) > 0 {
		next.Data[v1.ServiceAccountRootCAKey] = ca
	}
	if missing {
		token, err := sign(c.options.PrivateKeyFile, account, secret)
		if err != nil {
			return nil, err
		}
		next.Data[v1.ServiceAccountTokenKey] = []byte(token)
	}
	return next, nil
}
