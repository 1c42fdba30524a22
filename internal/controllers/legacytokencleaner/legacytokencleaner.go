// Package legacytokencleaner takes the tokens away that nobody uses any longer
// of those that were once made for every service account by itself and are
// kept in secrets (KEP-2799):
//
//	unused for a period ──▶ invalid: labelled, refused ──unused for another──▶ deleted
//
// Who takes the label away from an invalid one may use it again. Tokens that
// somebody asked for, which their account does not list, are left alone.
package legacytokencleaner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	period := 365 * 24 * time.Hour
	return controller.Descriptor{
		Name:           "legacy-serviceaccount-token-cleaner-controller",
		Aliases:        []string{"legacy-service-account-token-cleaner"},
		ServiceAccount: "legacy-service-account-token-cleaner",
		EventSource:    "legacy-service-account-token-cleaner",
		AddFlags: func(fs *pflag.FlagSet) {
			fs.DurationVar(&period, "legacy-service-account-token-clean-up-period", period, "The period of time since the last usage of an legacy service account token before it can be deleted.")
		},
		New: func(env *controller.Env) (controller.Controller, error) { return newController(env, period) },
	}
}

// interval is how often the tokens are looked at. Their use is known by the day.
const interval = 24 * time.Hour

type cleaner struct {
	env      *controller.Env
	period   time.Duration
	secrets  corelisters.SecretLister
	accounts corelisters.ServiceAccountLister
	pods     corelisters.PodLister
}

func newController(env *controller.Env, period time.Duration) (controller.Controller, error) {
	core := env.Client.Informers.Core().V1()
	return &cleaner{
		env: env, period: period,
		secrets: core.Secrets().Lister(), accounts: core.ServiceAccounts().Lister(), pods: core.Pods().Lister(),
	}, nil
}

// Run implements controller.Controller.
func (c *cleaner) Run(ctx context.Context) error {
	core := c.env.Client.Informers.Core().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.Reads(core.Secrets().Informer()),
		controller.Reads(core.ServiceAccounts().Informer()),
		controller.Reads(core.Pods().Informer()),
	}, func(ctx context.Context) error {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			if err := c.clean(ctx, time.Now()); err != nil {
				klog.FromContext(ctx).Error(err, "Some unused tokens stay until the next time")
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
}

// clean looks at every token once. What was used before uses were noted is not
// known, so nothing happens before they have been noted for a whole period.
func (c *cleaner) clean(ctx context.Context, now time.Time) error {
	r := rule{now: now.UTC(), period: c.period}
	secrets, err := c.secrets.List(labels.Everything())
	if err != nil {
		return err
	}
	var unused []*v1.Secret
	for _, secret := range secrets {
		if secret.Type == v1.SecretTypeServiceAccountToken && !r.recent(secret) && c.generated(secret) {
			unused = append(unused, secret)
		}
	}
	if len(unused) == 0 {
		return nil
	}
	since, err := c.trackedSince(ctx)
	if err != nil || since >= r.limit() {
		return err
	}
	var errs []error
	for _, secret := range unused {
		pods, err := c.pods.Pods(secret.Namespace).List(labels.Everything())
		if err != nil {
			return err
		}
		if !usedByAny(pods, secret.Name) {
			errs = append(errs, c.act(ctx, secret, r))
		}
	}
	return errors.Join(errs...)
}

// tracking is where API servers say since when they note the use of tokens.
const tracking = "kube-apiserver-legacy-service-account-token-tracking"

func (c *cleaner) trackedSince(ctx context.Context) (date string, err error) {
	m, err := c.env.Client.Kubernetes.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, tracking, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("finding out since when the use of tokens is noted: %w", err)
	}
	since := m.Data["since"]
	if _, err := time.Parse(time.DateOnly, since); err != nil {
		return "", fmt.Errorf("the ConfigMap %s/%s says that the use of tokens is noted since %q: %w", m.Namespace, m.Name, since, err)
	}
	return since, nil
}

// generated says whether a token was made by itself: its account lists it.
func (c *cleaner) generated(secret *v1.Secret) bool {
	account, err := c.accounts.ServiceAccounts(secret.Namespace).Get(secret.Annotations[v1.ServiceAccountNameKey])
	if err != nil || string(account.UID) != secret.Annotations[v1.ServiceAccountUIDKey] {
		return false
	}
	for _, ref := range account.Secrets {
		if ref.Name == secret.Name {
			return true
		}
	}
	return false
}

// act marks an unused token as invalid, or deletes it if it has been for long
// enough, unless it has changed since it was looked at.
func (c *cleaner) act(ctx context.Context, secret *v1.Secret, r rule) error {
	log := klog.FromContext(ctx).WithValues("secret", klog.KObj(secret))
	secrets := c.env.Client.Kubernetes.CoreV1().Secrets(secret.Namespace)
	var err error
	switch r.verdict(secret) {
	case invalidate:
		log.Info("Marking the unused service account token as invalid")
		patch, marshalErr := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": secret.UID, "resourceVersion": secret.ResourceVersion,
			"labels": map[string]string{invalidSince: r.today()},
		}})
		if marshalErr != nil {
			return marshalErr
		}
		_, err = secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	case remove:
		log.Info("Deleting the service account token, which has been unused and invalid")
		err = secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cleaning up the token %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
