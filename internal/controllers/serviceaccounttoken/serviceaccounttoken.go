// Package serviceaccounttoken is the service account token controller. It puts
// tokens that never expire into secrets of type
// kubernetes.io/service-account-token, and deletes these secrets with their
// service account. When such a secret is deleted, it removes the secret from the
// service account's list.
package serviceaccounttoken

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// Descriptor describes the controller. It has the identity of the controller
// manager, because service accounts get their tokens from it.
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
	// PrivateKeyFile is the PEM file with the key that signs tokens. If it is
	// empty, the controller does nothing.
	PrivateKeyFile string
	// ConcurrentSyncs is the number of secrets that are synced concurrently.
	ConcurrentSyncs int
}

// DefaultOptions returns upstream's defaults.
func DefaultOptions() Options { return Options{ConcurrentSyncs: 5} }

func (o *Options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.PrivateKeyFile, "service-account-private-key-file", o.PrivateKeyFile, "file with the RSA or ECDSA key that signs service account tokens, in PEM")
	flagvalue.Is(fs, flagvalue.File, "service-account-private-key-file")
	controller.WorkersFlag(&o.ConcurrentSyncs, "concurrent-serviceaccount-token-syncs", "service account token objects")(fs)
}

type tokens struct {
	env      *controller.Env
	options  *Options
	accounts corelisters.ServiceAccountLister
	secrets  corelisters.SecretLister
	queue    *controller.Queue[controller.Key]
	// references holds the deleted secrets that service accounts may still list.
	references *controller.Queue[reference]
}

// reference is a secret in the list of a service account.
type reference struct {
	secret       controller.Key
	account, uid string // uid is empty if it is not known
}

// newController builds the controller. Without --service-account-private-key-file,
// it does not change secrets.
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
	c.queue = controller.NewQueue(env.Queues, "serviceaccount_tokens_secret", c.sync)
	c.references = controller.NewQueue(env.Queues, "serviceaccount_tokens_reference", c.removeReference)
	return c, nil
}

// Run implements controller.Controller.
func (c *tokens) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.On(core.Secrets().Informer(), c.secretChanged),
		controller.On(core.ServiceAccounts().Informer(), c.accountChanged),
	}, c.queue.Workers(c.options.ConcurrentSyncs), c.references.Workers(1))
}

// secretChanged enqueues a token secret, or its reference if it was deleted.
func (c *tokens) secretChanged(old, secret *v1.Secret) {
	switch {
	case secret != nil && secret.Type == v1.SecretTypeServiceAccountToken:
		c.queue.Add(cache.MetaObjectToName(secret))
	case secret == nil && old.Type == v1.SecretTypeServiceAccountToken && old.Annotations[v1.ServiceAccountNameKey] != "":
		c.references.Add(reference{cache.MetaObjectToName(old), old.Annotations[v1.ServiceAccountNameKey], old.Annotations[v1.ServiceAccountUIDKey]})
	}
}

// removeReference removes a deleted secret from the list of its service account, unless
// there is a new secret of that name.
func (c *tokens) removeReference(ctx context.Context, r reference) error {
	if _, err := c.secrets.Secrets(r.secret.Namespace).Get(r.secret.Name); !apierrors.IsNotFound(err) {
		return err
	}
	api := c.env.Client.Kubernetes.CoreV1().ServiceAccounts(r.secret.Namespace)
	account, err := api.Get(ctx, r.account, metav1.GetOptions{})
	if err != nil {
		return controller.IgnoreNotFound(err)
	}
	lists := func(s v1.ObjectReference) bool { return s.Name == r.secret.Name }
	if r.uid != "" && r.uid != string(account.UID) || !slices.ContainsFunc(account.Secrets, lists) {
		return nil
	}
	account.Secrets = slices.DeleteFunc(account.Secrets, lists)
	if _, err := api.Update(ctx, account, metav1.UpdateOptions{}); controller.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing secret %s from service account %s: %w", r.secret, r.account, err)
	}
	return nil
}

// accountChanged enqueues the secrets of an account that was created or deleted.
func (c *tokens) accountChanged(old, new *v1.ServiceAccount) {
	account := cmp.Or(new, old)
	if old != nil && new != nil {
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
		klog.FromContext(ctx).V(4).Info("Deleting token of a deleted service account", "secret", klog.KObj(secret))
		err := api.Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
		return controller.IgnoreNotFoundOrConflict(err)
	}
	next, err := c.desired(secret, account)
	if err != nil || next == nil {
		return err
	}
	if _, err := api.Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("updating secret %s: %w", secret.Name, err)
	}
	return nil
}

// account returns the service account of a secret, or nil if it does not exist.
// It does not rely on the cache for the latter, because the secret will be
// deleted.
func (c *tokens) account(ctx context.Context, secret *v1.Secret) (*v1.ServiceAccount, error) {
	name, uid := secret.Annotations[v1.ServiceAccountNameKey], secret.Annotations[v1.ServiceAccountUIDKey]
	matches := func(a *v1.ServiceAccount) bool { return uid == "" || uid == string(a.UID) }
	account, err := c.accounts.ServiceAccounts(secret.Namespace).Get(name)
	if err == nil && matches(account) {
		return account, nil
	}
	account, err = c.env.Client.Kubernetes.CoreV1().ServiceAccounts(secret.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && !matches(account):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting service account %s: %w", name, err)
	}
	return account, nil
}

// desired returns the secret with the account's UID, token, namespace and root
// CA, or nil if the secret already has them.
func (c *tokens) desired(secret *v1.Secret, account *v1.ServiceAccount) (*v1.Secret, error) {
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
