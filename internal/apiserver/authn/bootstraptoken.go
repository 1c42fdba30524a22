package authn

import (
	"context"
	"crypto/subtle"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/bootstraptoken"
)

const (
	bootstrapUserPrefix = "system:bootstrap:"
	bootstrapGroup      = "system:bootstrappers"
)

// newBootstrapTokens returns an authenticator of bootstrap tokens, with which
// nodes join. A token is ID.SECRET and is stored in the secret
// kube-system/bootstrap-token-ID. Tokens that have expired, are not for
// authentication, or have groups outside system:bootstrappers are not
// recognised.
func newBootstrapTokens(source objects.Source, c clock.PassiveClock) authenticator.Token {
	secrets := objects.Of[*corev1.Secret](source, objects.Secrets)
	return authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		claimed, ok := bootstraptoken.Parse(token)
		if !ok {
			return nil, false, nil
		}
		secret, ok := secrets.Get(metav1.NamespaceSystem, bootstraptoken.SecretPrefix+claimed.ID)
		if !ok || secret.DeletionTimestamp != nil || secret.Type != corev1.SecretTypeBootstrapToken {
			return nil, false, nil
		}
		groups, ok := bootstrapGroups(secret.Data, claimed, c.Now())
		if !ok {
			return nil, false, nil
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrapUserPrefix + claimed.ID, Groups: groups}}, true, nil
	})
}

func bootstrapGroups(data map[string][]byte, claimed bootstraptoken.Token, now time.Time) (groups []string, ok bool) {
	if subtle.ConstantTimeCompare(data[bootstraptoken.SecretKey], []byte(claimed.Secret)) != 1 || string(data[bootstraptoken.IDKey]) != claimed.ID {
		return nil, false
	}
	if expiration := string(data[bootstraptoken.ExpirationKey]); expiration != "" {
		at, err := time.Parse(time.RFC3339, expiration)
		if err != nil || !now.Before(at) {
			return nil, false
		}
	}
	if string(data[bootstraptoken.UsagePrefix+bootstraptoken.Authentication]) != "true" {
		return nil, false
	}
	groups = []string{bootstrapGroup}
	for g := range strings.SplitSeq(string(data[bootstraptoken.GroupsKey]), ",") {
		if g == "" {
			continue
		}
		if !bootstraptoken.IsGroup(g) {
			return nil, false
		}
		groups = append(groups, g)
	}
	return groups, true
}
