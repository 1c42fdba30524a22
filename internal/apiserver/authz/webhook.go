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
)

// newWebhook makes an authorizer that asks a server by SubjectAccessReviews.
func newWebhook(a apiserver.AuthorizerConfiguration, backoff wait.Backoff) (*briefly, error) {
	c := a.Webhook
	if c == nil || c.ConnectionInfo.KubeConfigFile == nil {
		return nil, fmt.Errorf("authorization webhook %s: no kubeconfig file says where it is", a.Name)
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
	w, err := webhook.New(config, c.SubjectAccessReviewVersion, authorized, unauthorized, backoff, onError, c.MatchConditions, a.Name, counts, authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, fmt.Errorf("authorization webhook %s: %w", a.Name, err)
	}
	return &briefly{w}, nil
}

// briefly is a webhook whose answers to long questions are not remembered. It
// keeps the last 8192 questions and looks at how long their other parts are,
// but who asks for a review chooses the user, and whoever lists the selectors.
type briefly struct{ *webhook.WebhookAuthorizer }

// Authorize implements authorizer.Authorizer.
func (b *briefly) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if questionSize(a) > maxQuestion {
		a = long{a}
	}
	return b.WebhookAuthorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (b *briefly) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(b.Authorize(ctx, a))
}

// maxQuestion bounds the user and the selectors of a question whose answer is
// remembered, in bytes.
const maxQuestion = 10_000

// long is a question that is too long to be remembered, by an attribute that is
// not asked about.
type long struct{ authorizer.Attributes }

func padding() string { return strings.Repeat(" ", maxQuestion) }

// GetPath implements authorizer.Attributes.
func (l long) GetPath() string {
	if l.IsResourceRequest() {
		return padding()
	}
	return l.Attributes.GetPath()
}

// GetName implements authorizer.Attributes.
func (l long) GetName() string {
	if l.IsResourceRequest() {
		return l.Attributes.GetName()
	}
	return padding()
}

// questionSize is what the user and the selectors take, about.
func questionSize(a authorizer.Attributes) (bytes int) {
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
