package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"iter"
	"net"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

type dockerEntry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// Credential is a login for a registry. Secret identifies the pull secret that
// it comes from, with a hash of its content, Account the service account that a
// credential provider gave it to. Both are empty if the login is the node's.
type Credential struct {
	Auth    *runtimeapi.AuthConfig
	Secret  kubeletconfig.ImagePullSecret
	Account kubeletconfig.ImagePullServiceAccount
}

// Bounds of the logins for one image. Each is tried, and a registry gets it in a
// header.
const (
	maxLogins    = 100
	maxLoginSize = 64 << 10 // bytes
)

// Credentials returns the logins for the image in the pull secrets, in the order
// in which to try them: the most specific registry first. It returns at most 100.
func Credentials(image string, secrets iter.Seq[*v1.Secret]) []Credential {
	var found []match
	for secret := range secrets {
		if len(found) > 2*maxLogins {
			found = best(found)
		}
		found = append(found, loginsFor(image, entries(secret), func(auth *runtimeapi.AuthConfig) Credential {
			return Credential{Secret: kubeletconfig.ImagePullSecret{
				UID: string(secret.UID), Namespace: secret.Namespace, Name: secret.Name, CredentialHash: hash(auth),
			}}
		})...)
	}
	return ordered(found)
}

// match is a login for an image, and the registry that it is for.
type match struct {
	pattern    string
	credential Credential
}

// loginsFor returns the logins whose registries match an image. from says where
// they come from.
func loginsFor(image string, logins map[string]dockerEntry, from func(*runtimeapi.AuthConfig) Credential) []match {
	var found []match
	for registry, entry := range logins {
		if !matches(registry, image) {
			continue
		}
		auth := &runtimeapi.AuthConfig{Username: entry.Username, Password: entry.Password, IdentityToken: entry.IdentityToken, RegistryToken: entry.RegistryToken}
		if username, password, ok := decode(entry.Auth); ok {
			auth.Username, auth.Password = username, password
		}
		if len(auth.Username)+len(auth.Password)+len(auth.IdentityToken)+len(auth.RegistryToken) > maxLoginSize {
			continue
		}
		credential := from(auth)
		credential.Auth = auth
		found = append(found, match{trim(registry), credential})
	}
	return found
}

// decode returns the user name and the password in the field auth of a login, with or
// without padding.
func decode(auth string) (username, password string, ok bool) {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(raw), ":")
}

// best returns the first maxLogins of the logins in their order.
func best(found []match) []match {
	slices.SortStableFunc(found, func(a, b match) int {
		return cmp.Or(len(b.pattern)-len(a.pattern), strings.Compare(a.pattern, b.pattern))
	})
	return slices.Clone(found[:min(len(found), maxLogins)])
}

func ordered(found []match) []Credential {
	found = best(found)
	out := make([]Credential, 0, len(found))
	for _, m := range found {
		out = append(out, m.credential)
	}
	return out
}

// hash returns a hash that is equal for equal credentials in different secrets.
func hash(auth *runtimeapi.AuthConfig) string {
	raw, err := json.Marshal([]string{auth.GetUsername(), auth.GetPassword(), auth.GetIdentityToken(), auth.GetRegistryToken()})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func entries(secret *v1.Secret) map[string]dockerEntry {
	switch secret.Type {
	case v1.SecretTypeDockerConfigJson:
		var file struct {
			Auths map[string]dockerEntry `json:"auths"`
		}
		if json.Unmarshal(secret.Data[v1.DockerConfigJsonKey], &file) == nil {
			return file.Auths
		}
	case v1.SecretTypeDockercfg:
		var auths map[string]dockerEntry
		if json.Unmarshal(secret.Data[v1.DockerConfigKey], &auths) == nil {
			return auths
		}
	}
	return nil
}

// trim returns the host and the path of a registry. Docker's client writes the version
// of the protocol before the path, which is not part of the names of images.
func trim(registry string) string {
	registry = strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://")
	host, prefix, _ := strings.Cut(registry, "/")
	if rest, ok := strings.CutPrefix(prefix, "v1/"); ok {
		prefix = rest
	} else {
		prefix = strings.TrimPrefix(prefix, "v2/")
	}
	if prefix == "" {
		return host
	}
	return host + "/" + prefix
}

const dockerHub = "index.docker.io"

// matches compares host, port and path prefix. "*" matches within one label of the
// host.
func matches(registry, image string) bool {
	host, rest, ok := strings.Cut(image, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, rest = dockerHub, image
	}
	if host == "docker.io" {
		host = dockerHub
	}
	if host == dockerHub && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	wantHost, wantPath, _ := strings.Cut(trim(registry), "/")
	if wantHost == "docker.io" || wantHost == "registry-1.docker.io" {
		wantHost = dockerHub
	}
	wantName, wantPort := splitPort(wantHost)
	name, port := splitPort(host)
	wantLabels, labels := strings.Split(wantName, "."), strings.Split(name, ".")
	if wantPort != port || len(wantLabels) != len(labels) {
		return false
	}
	for i := range labels {
		if ok, err := path.Match(wantLabels[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return strings.HasPrefix(rest, wantPath)
}

// splitPort splits a host from its port, "" if it has none.
func splitPort(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return host, ""
	}
	return name, port
}
