package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// Logins are what a pod has to log in to registries. The zero value is nothing.
type Logins struct {
	// Secrets returns the logins in the pod's pull secrets for an image.
	Secrets func(image string) []Credential
	// Account is the pod's service account; nil if it has none.
	Account *Account
}

func (l Logins) secrets(image string) []Credential {
	if l.Secrets == nil {
		return nil
	}
	return l.Secrets(image)
}

// Account is the service account of a pod, for the credential providers that
// want its token (KEP-4412).
type Account struct {
	Get func(ctx context.Context) (*v1.ServiceAccount, error)
	// Token returns a token of the account for an audience, bound to the pod.
	Token func(ctx context.Context, audience string) (string, error)
}

// caller is in whose name a provider is asked. The zero value is the node.
type caller struct {
	account     kubeletconfig.ImagePullServiceAccount
	token       string
	annotations map[string]string
	// key is equal for callers that get the same answers.
	key string
}

// caller returns in whose name to ask the provider for a pod. ok is false if the
// provider is only for pods with a service account.
func (p *provider) caller(ctx context.Context, account *Account) (c caller, ok bool, err error) {
	attributes := p.config.TokenAttributes
	if attributes == nil {
		return caller{}, true, nil
	}
	if account == nil {
		return caller{}, !*attributes.RequireServiceAccount, nil
	}
	found, err := account.Get(ctx)
	if err != nil {
		return caller{}, false, fmt.Errorf("reading the service account of the pod: %w", err)
	}
	for _, key := range attributes.RequiredServiceAccountAnnotationKeys {
		if _, has := found.Annotations[key]; !has {
			return caller{}, false, fmt.Errorf("the service account %s/%s does not have the annotation %s", found.Namespace, found.Name, key)
		}
	}
	c.account = kubeletconfig.ImagePullServiceAccount{UID: string(found.UID), Namespace: found.Namespace, Name: found.Name}
	for _, key := range slices.Concat(attributes.RequiredServiceAccountAnnotationKeys, attributes.OptionalServiceAccountAnnotationKeys) {
		if value, has := found.Annotations[key]; has {
			if c.annotations == nil {
				c.annotations = map[string]string{}
			}
			c.annotations[key] = value
		}
	}
	if c.token, err = account.Token(ctx, attributes.ServiceAccountTokenAudience); err != nil {
		return caller{}, false, err
	}
	what := []any{c.account, c.annotations}
	if attributes.CacheType == kubeletconfigv1.TokenServiceAccountTokenCacheType {
		what = append(what, c.token)
	}
	raw, err := json.Marshal(what)
	if err != nil {
		return caller{}, false, err
	}
	sum := sha256.Sum256(raw)
	c.key = hex.EncodeToString(sum[:])
	return c, true, nil
}

// asksForAccounts reports whether a provider for the image wants tokens of service
// accounts.
func (p *Providers) asksForAccounts(image string) bool {
	return p != nil && slices.ContainsFunc(p.all, func(one *provider) bool { return one.config.TokenAttributes != nil && one.matches(image) })
}

// tokenProblems returns what is wrong with the tokenAttributes of a provider.
func tokenProblems(one *kubeletconfigv1.CredentialProvider) (problems []string) {
	a := one.TokenAttributes
	if a == nil {
		return nil
	}
	add := func(wrong bool, what string) {
		if wrong {
			problems = append(problems, "tokenAttributes"+what)
		}
	}
	types := []kubeletconfigv1.ServiceAccountTokenCacheType{kubeletconfigv1.ServiceAccountServiceAccountTokenCacheType, kubeletconfigv1.TokenServiceAccountTokenCacheType}
	required, optional := a.RequiredServiceAccountAnnotationKeys, a.OptionalServiceAccountAnnotationKeys
	add(one.APIVersion != credentialv1.SchemeGroupVersion.String(), ": only programs with the apiVersion "+credentialv1.SchemeGroupVersion.String()+" have it")
	add(a.ServiceAccountTokenAudience == "", ".serviceAccountTokenAudience is required")
	add(!slices.Contains(types, a.CacheType), fmt.Sprintf(".cacheType %q: want one of %q", a.CacheType, types))
	add(a.RequireServiceAccount == nil, ".requireServiceAccount is required")
	add(a.RequireServiceAccount != nil && !*a.RequireServiceAccount && len(required) > 0, ".requiredServiceAccountAnnotationKeys needs requireServiceAccount: true")
	keys := slices.Sorted(slices.Values(slices.Concat(required, optional)))
	add(len(slices.Compact(slices.Clone(keys))) < len(keys), ": a key is twice in requiredServiceAccountAnnotationKeys and optionalServiceAccountAnnotationKeys")
	for _, key := range keys {
		errs := validation.IsQualifiedName(strings.ToLower(key))
		add(len(errs) > 0, fmt.Sprintf(": the annotation key %q: %s", key, strings.Join(errs, "; ")))
	}
	return problems
}
