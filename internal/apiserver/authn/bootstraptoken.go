package authn

import (
	"context"
	"crypto/subtle"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

const (
	bootstrapSecretType = corev1.SecretType("bootstrap.kubernetes.io/token")
	bootstrapUserPrefix = "system:bootstrap:"
	bootstrapGroup      = "system:bootstrappers"
)

var (
	bootstrapTokenPattern = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	bootstrapGroupPattern = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// newBootstrapTokens returns an authenticator of bootstrap tokens, with which
// nodes join. A token is ID.SECRET and is stored in the secret
// kube-system/bootstrap-token-ID. Tokens that have expired, are not for
// authentication, or have groups outside system:bootstrappers are not
// recognised.
func newBootstrapTokens(source objects.Source, c clock.PassiveClock) authenticator.Token {
	secrets := objects.Of[*corev1.Secret](source, objects.Secrets)
	return authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		parts := bootstrapTokenPattern.FindStringSubmatch(token)
		if parts == nil {
			return nil, false, nil
		}
		secret, ok := secrets.Get(metav1.NamespaceSystem, "bootstrap-token-"+parts[1])
		if !ok || secret.DeletionTimestamp != nil || secret.Type != bootstrapSecretType {
			return nil, false, nil
		}
		groups, ok := bootstrapGroups(secret.Data, parts[1], parts[2], c.Now())
		if !ok {
			return nil, false, nil
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrapUserPrefix + parts[1], Groups: groups}}, true, nil
	})
}

func bootstrapGroups(data map[string][]byte, id, secret string, now time.Time) (groups []string, ok bool) {
	if subtle.ConstantTimeCompare(data["token-secret"], []byte(secret)) != 1 || string(data["token-id"]) != id {
		return nil, false
	}
	if expiration := string(data["expiration"]); expiration != "" {
		at, err := time.Parse(time.RFC3339, expiration)
		if err != nil || !now.Before(at) {
			return nil, false
		}
	}
	if string(data["usage-bootstrap-authentication"]) != "true" {
		return nil, false
	}
	groups = []string{bootstrapGroup}
	for g := range strings.SplitSeq(string(data["auth-extra-groups"]), ",") {
		if g == "" {
			continue
		}
		if !bootstrapGroupPattern.MatchString(g) {
			return nil, false
		}
		groups = append(groups, g)
	}
	return groups, true
}
