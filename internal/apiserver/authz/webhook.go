package authz

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
)

// newWebhook makes an authorizer that asks a server by SubjectAccessReviews.
func newWebhook(a apiserver.AuthorizerConfiguration, backoff wait.Backoff) (*webhook.WebhookAuthorizer, error) {
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
	return w, nil
}
