package authn

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
)

// Webhook is a server that authenticates tokens by TokenReviews.
type Webhook struct {
	// ConfigFile is the kubeconfig with its address.
	ConfigFile string
	// Version is the API version of TokenReviews sent to the webhook: v1 or v1beta1.
	Version string
	// CacheTTL is how long its responses are cached; 0 disables the cache.
	CacheTTL time.Duration
	// Backoff is the back-off between attempts to reach it.
	Backoff wait.Backoff
}

func newWebhook(w *Webhook, audiences authenticator.Audiences) (authenticator.Token, error) {
	config, err := webhookutil.LoadKubeconfig(w.ConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	token, err := webhook.New(config, w.Version, audiences, w.Backoff)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file %s: %w", w.ConfigFile, err)
	}
	if w.CacheTTL == 0 {
		return token, nil
	}
	return cache.New(token, false, w.CacheTTL, w.CacheTTL), nil
}
