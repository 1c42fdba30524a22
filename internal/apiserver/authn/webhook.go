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

// Webhook is a server that is asked whose a token is, by TokenReviews.
type Webhook struct {
	// ConfigFile is the kubeconfig that says where it is.
	ConfigFile string
	// Version of the TokenReviews that it understands: v1 or v1beta1.
	Version string
	// CacheTTL is how long its answers are remembered; 0 is not at all.
	CacheTTL time.Duration
	// Backoff is how long to wait between attempts to reach it.
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
