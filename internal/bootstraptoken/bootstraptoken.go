// Package bootstraptoken defines bootstrap tokens, with which nodes join a
// cluster: they authenticate a node that has no certificate yet, and sign the
// ConfigMap cluster-info, so that the node can trust the cluster. The token
// abcdef.0123456789abcdef is stored in the secret
// kube-system/bootstrap-token-abcdef
// (kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens).
package bootstraptoken

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecretPrefix and the ID of a token are the name of its secret.
const SecretPrefix = "bootstrap-token-"

// Keys in the secret of a token. UsagePrefix and a usage are the key of "true" if
// the token has the usage.
const (
	IDKey          = "token-id"
	SecretKey      = "token-secret"
	ExpirationKey  = "expiration" // RFC 3339
	DescriptionKey = "description"
	GroupsKey      = "auth-extra-groups" // separated by commas
	UsagePrefix    = "usage-bootstrap-"
)

// ClusterInfo is the name of a ConfigMap in kube-public, and ClusterInfoKey the key
// of the kubeconfig in it, which has the URL of the API server and its authority.
// SignaturePrefix and the ID of a token are the key of a signature of it.
const (
	ClusterInfo     = "cluster-info"
	ClusterInfoKey  = "kubeconfig"
	SignaturePrefix = "jws-kubeconfig-"
)

// Usages of a token.
const (
	Authentication = "authentication"
	Signing        = "signing"
)

// DefaultGroup is the group of nodes that join, to which kubeadm gives their
// rights.
const DefaultGroup = "system:bootstrappers:kubeadm:default-node-token"

var (
	tokenPattern = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	idPattern    = regexp.MustCompile(`^[a-z0-9]{6}$`)
	groupPattern = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// IsGroup reports whether a token may have an extra group.
func IsGroup(name string) bool { return groupPattern.MatchString(name) }

// Token is what a node knows. It is written ID.SECRET.
type Token struct{ ID, Secret string }

// String returns ID.SECRET.
func (t Token) String() string { return t.ID + "." + t.Secret }

// Sign returns the token's signature of content: a JWS (RFC 7515) without its
// payload, by HMAC with SHA-256. Anyone with the token can check it.
func (t Token) Sign(content string) string {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode(fmt.Appendf(nil, `{"alg":"HS256","kid":%q}`, t.ID))
	mac := hmac.New(sha256.New, []byte(t.Secret))
	mac.Write([]byte(header + "." + encode([]byte(content))))
	return header + ".." + encode(mac.Sum(nil))
}

// Parse reads a token. ok is false if text is none.
func Parse(text string) (t Token, ok bool) {
	parts := tokenPattern.FindStringSubmatch(text)
	if parts == nil {
		return Token{}, false
	}
	return Token{parts[1], parts[2]}, true
}

// ParseID returns the ID in text, which is a token or an ID alone.
func ParseID(text string) (id string, ok bool) {
	if t, ok := Parse(text); ok {
		return t.ID, true
	}
	return text, idPattern.MatchString(text)
}

// New returns a random token.
func New() Token {
	text := strings.ToLower(rand.Text()) // 26 letters and digits
	return Token{text[:6], text[6:22]}
}

// BootstrapToken is a token and what it is for.
type BootstrapToken struct {
	Token       Token
	Description string
	Expires     time.Time // zero if it never does
	Usages      []string
	Groups      []string // besides system:bootstrappers
}

// Validate returns all errors in the usages and groups.
func (b *BootstrapToken) Validate() error {
	var all []error
	if len(b.Usages) == 0 {
		all = append(all, fmt.Errorf("no usage: want %s, %s or both", Signing, Authentication))
	}
	for _, usage := range b.Usages {
		if usage != Signing && usage != Authentication {
			all = append(all, fmt.Errorf("usage %q: want %s or %s", usage, Signing, Authentication))
		}
	}
	for _, group := range b.Groups {
		if !IsGroup(group) {
			all = append(all, fmt.Errorf("group %q: want a name such as %s", group, DefaultGroup))
		}
	}
	if len(b.Groups) > 0 && !slices.Contains(b.Usages, Authentication) {
		all = append(all, fmt.Errorf("groups %s: they need the usage %s", strings.Join(b.Groups, ","), Authentication))
	}
	return errors.Join(all...)
}

// ToSecret returns the secret in which the token is stored.
func (b *BootstrapToken) ToSecret() *v1.Secret {
	s := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: SecretPrefix + b.Token.ID, Namespace: metav1.NamespaceSystem},
		Type:       v1.SecretTypeBootstrapToken,
		Data:       map[string][]byte{IDKey: []byte(b.Token.ID), SecretKey: []byte(b.Token.Secret)},
	}
	if b.Description != "" {
		s.Data[DescriptionKey] = []byte(b.Description)
	}
	if !b.Expires.IsZero() {
		s.Data[ExpirationKey] = []byte(b.Expires.UTC().Format(time.RFC3339))
	}
	if len(b.Groups) > 0 {
		s.Data[GroupsKey] = []byte(strings.Join(b.Groups, ","))
	}
	for _, usage := range b.Usages {
		s.Data[UsagePrefix+usage] = []byte("true")
	}
	return s
}

// FromSecret reads the token that a secret stores, with sorted usages and groups.
func FromSecret(s *v1.Secret) (*BootstrapToken, error) {
	b := &BootstrapToken{
		Token:       Token{string(s.Data[IDKey]), string(s.Data[SecretKey])},
		Description: string(s.Data[DescriptionKey]),
	}
	if _, ok := Parse(b.Token.String()); !ok || s.Name != SecretPrefix+b.Token.ID {
		return nil, fmt.Errorf("secret %s/%s: its %s and %s are no token of this name", s.Namespace, s.Name, IDKey, SecretKey)
	}
	if text := string(s.Data[ExpirationKey]); text != "" {
		var err error
		if b.Expires, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, fmt.Errorf("secret %s/%s: %s: %w", s.Namespace, s.Name, ExpirationKey, err)
		}
	}
	for key, value := range s.Data {
		if usage, ok := strings.CutPrefix(key, UsagePrefix); ok && string(value) == "true" {
			b.Usages = append(b.Usages, usage)
		}
	}
	slices.Sort(b.Usages)
	if groups := string(s.Data[GroupsKey]); groups != "" {
		b.Groups = strings.Split(groups, ",")
	}
	slices.Sort(b.Groups)
	return b, nil
}
