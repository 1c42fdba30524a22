package authz

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"github.com/coracle-io/coracle/internal/amount/celamount"
)

// newWebhook returns an authorizer that asks a server by SubjectAccessReviews.
func newWebhook(a apiserver.AuthorizerConfiguration, backoff wait.Backoff) (*boundedCache, error) {
	c := a.Webhook
	if c == nil || c.ConnectionInfo.KubeConfigFile == nil {
		return nil, fmt.Errorf("authorization webhook %s: no kubeconfig file is given", a.Name)
	}
	config, err := webhookutil.LoadKubeconfig(*c.ConnectionInfo.KubeConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("authorization webhook %s: %w", a.Name, err)
	}
	config.Timeout = c.Timeout.Duration
	authorized, unauthorized := c.AuthorizedTTL.Duration, c.UnauthorizedTTL.Duration
	if !c.CacheAuthorizedRequests {
		authorized = 0
	}
	if !c.CacheUnauthorizedRequests {
		unauthorized = 0
	}
	onError := authorizer.DecisionNoOpinion
	if c.FailurePolicy == apiserver.FailurePolicyDeny {
		onError = authorizer.DecisionDeny
	}
	counts := struct {
		webhookmetrics.NoopRequestMetrics
		webhookmetrics.WebhookMetrics
		authorizationcel.MatcherMetrics
	}{WebhookMetrics: webhookmetrics.NewWebhookMetrics(), MatcherMetrics: authorizationcel.NewMatcherMetrics()}
	celamount.Bound()
	w, err := webhook.New(config, c.SubjectAccessReviewVersion, authorized, unauthorized, backoff, onError, c.MatchConditions, a.Name, counts, authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, fmt.Errorf("authorization webhook %s: %w", a.Name, err)
	}
	return &boundedCache{w}, nil
}

// boundedCache is a webhook authorizer that does not cache decisions on long
// requests. The webhook's cache holds the last 8192 requests and bounds the
// size of some attributes, but not of the user, which the sender of a review
// chooses, nor of the selectors of a list.
type boundedCache struct{ *webhook.WebhookAuthorizer }

// Authorize implements authorizer.Authorizer.
func (b *boundedCache) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if requestSize(a) > maxCachedSize {
		a = uncacheable{a}
	}
	return b.WebhookAuthorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (b *boundedCache) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(b.Authorize(ctx, a))
}

// maxCachedSize bounds the user and the selectors of a request whose decision
// is cached, in bytes.
const maxCachedSize = 10_000

// uncacheable is a request that is too long to be cached, because of an
// attribute that the webhook is not asked about.
type uncacheable struct{ authorizer.Attributes }

func padding() string { return strings.Repeat(" ", maxCachedSize) }

// GetPath implements authorizer.Attributes.
func (u uncacheable) GetPath() string {
	if u.IsResourceRequest() {
		return padding()
	}
	return u.Attributes.GetPath()
}

// GetName implements authorizer.Attributes.
func (u uncacheable) GetName() string {
	if u.IsResourceRequest() {
		return u.Attributes.GetName()
	}
	return padding()
}

// requestSize returns the approximate size of the user and the selectors in
// bytes.
func requestSize(a authorizer.Attributes) (bytes int) {
	const perValue = 8
	add := func(values ...string) {
		for _, value := range values {
			bytes += len(value) + perValue
		}
	}
	if u := a.GetUser(); u != nil {
		add(u.GetName(), u.GetUID())
		add(u.GetGroups()...)
		for key, values := range u.GetExtra() {
			add(key)
			add(values...)
		}
	}
	byField, _ := a.GetFieldSelector()
	for _, r := range byField {
		add(r.Field, r.Value)
	}
	byLabel, _ := a.GetLabelSelector()
	for _, r := range byLabel {
		add(r.Key())
		add(r.ValuesUnsorted()...)
	}
	return bytes
}
