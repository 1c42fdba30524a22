package image

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// However many pull secrets a pod names, the best logins are tried, and none that
// is too long for a registry.
func TestLoginsAreBounded(t *testing.T) {
	secrets := func(yield func(*v1.Secret) bool) {
		for i := range 1000 {
			registry, password := "registry.example.com", fmt.Sprint("password-", i)
			switch i {
			case 700:
				registry += "/team"
			case 800:
				registry, password = registry+"/team/app", strings.Repeat("x", maxLoginSize)
			}
			raw := fmt.Appendf(nil, `{"auths":{%q:{"username":"u","password":%q}}}`, registry, password)
			if !yield(&v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: raw}}) {
				return
			}
		}
	}
	got := Credentials("registry.example.com/team/app:1", secrets)
	if len(got) != maxLogins || got[0].Auth.GetPassword() != "password-700" || got[1].Auth.GetPassword() != "password-0" {
		t.Errorf("%d logins, first %v", len(got), got[:min(len(got), 2)])
	}
}
