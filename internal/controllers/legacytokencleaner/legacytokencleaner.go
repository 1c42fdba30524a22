// Package legacytokencleaner is the legacy service account token cleaner (KEP-2799). It
// deletes unused tokens in secrets that were generated automatically for every service
// account:
//
//	unused for a period ──▶ labelled as invalid ──unused for another period──▶ deleted
//
// The API server rejects tokens labelled as invalid. A user can remove the label to use a
// token again. The cleaner ignores tokens that users have requested, which are not listed
// in the service account.
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
	"github.com/coracle-io/coracle/internal/legacytoken"
	"github.com/coracle-io/coracle/internal/supervise"
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
			fs.DurationVar(&period, "legacy-service-account-token-clean-up-period", period, "how long a legacy service account token must be unused before it is deleted")
		},
		New: func(env *controller.Env) (controller.Controller, error) { return newController(env, period) },
	}
}

// interval is the time between two cleanups. The last use of a token is recorded with a
// precision of a day.
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
		supervise.Repeat(ctx, interval, func() {
			if err := c.clean(ctx, time.Now()); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot clean up some unused tokens, retrying later", "after", interval)
			}
		})
		return nil
	})
}

// clean processes all tokens. It does nothing until the API servers have tracked the use
// of tokens for a whole period, because earlier uses are unknown.
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
			errs = append(errs, c.apply(ctx, secret, r))
		}
	}
	return errors.Join(errs...)
}

// tracking is the ConfigMap in which API servers record since when they track the use of
// tokens.
const tracking = "kube-apiserver-legacy-service-account-token-tracking"

func (c *cleaner) trackedSince(ctx context.Context) (date string, err error) {
	m, err := c.env.Client.Kubernetes.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, tracking, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("getting the start of token tracking: %w", err)
	}
	since := m.Data["since"]
	if _, err := time.Parse(time.DateOnly, since); err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: invalid start of token tracking %q: %w", m.Namespace, m.Name, since, err)
	}
	return since, nil
}

// generated reports whether a token was generated automatically, which is the case if its
// service account lists it.
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

// apply labels an unused token as invalid, or deletes it if it has been invalid for a
// period. It fails with a conflict if the token has changed.
func (c *cleaner) apply(ctx context.Context, secret *v1.Secret, r rule) error {
	log := klog.FromContext(ctx).WithValues("secret", klog.KObj(secret))
	secrets := c.env.Client.Kubernetes.CoreV1().Secrets(secret.Namespace)
	var err error
	switch r.actionFor(secret) {
	case invalidate:
		log.Info("Marking unused service account token as invalid")
		patch, marshalErr := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": secret.UID, "resourceVersion": secret.ResourceVersion,
			"labels": map[string]string{legacytoken.InvalidSince: r.today()},
		}})
		if marshalErr != nil {
			return marshalErr
		}
		_, err = secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	case remove:
		log.Info("Deleting unused and invalid service account token")
		err = secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cleaning up token %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
