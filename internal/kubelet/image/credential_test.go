package image

import (
	"fmt"
	"slices"
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

// A login is for the images on its host, compared label by label, with its port and
// with its path before theirs.
func TestLoginsMatchImages(t *testing.T) {
	for _, test := range []struct {
		registry, image string
		want            bool
	}{
		{"*.example.com", "a.example.com/app:1", true},
		{"a.*.com", "a.example.com/app:1", true},
		{"a.example.*", "a.example.com/app:1", true},
		{"*-good.example.com", "a-good.example.com/app:1", true},
		{"*-good.example.com", "a-bad.example.com/app:1", false},
		{"*.example.com", "example.com/app:1", false},
		{"*.example.com", "a.b.example.com/app:1", false},
		{"*.*.example.com", "a.b.example.com/app:1", true},
		{"a.*.com/foo", "a.example.com/foo/bar:1", true},
		{"a.*.com/foo", "a.example.com/bar/foo:1", false},
		{"example.com/team", "example.com/teamwork/app:1", true},
		{"example.com/team/", "example.com/teamwork/app:1", false},
		{"example.com/team/", "example.com/team/app:1", true},
		{"*.example.com:1111/foo", "a.example.com:1111/foo:1", true},
		{"a.example.*:1111", "a.example.com:1111/app:1", true},
		{"a.example.com:1111", "a.example.com:2222/app:1", false},
		{"a.example.com:1111", "a.example.com/app:1", false},
		{"a.example.com", "a.example.com:1111/app:1", false},
		{"a.example.*", "a.example.com:1111/app:1", false},
		{"[::1]:5000", "[::1]:5000/app:1", true},
		{"localhost:5000", "localhost:5000/app:1", true},
		{"https://example.com/v1/", "example.com/app:1", true},
		{"https://example.com/v2/", "example.com/app:1", true},
		{"http://example.com/v1/team", "example.com/team/app:1", true},
		{"http://example.com/v1/team", "example.com/other/app:1", false},
		{"https://index.docker.io/v1/", "nginx:1", true},
		{"https://index.docker.io/v1/", "docker.io/library/nginx:1", true},
		{"docker.io", "team/app:1", true},
		{"docker.io/library", "nginx:1", true},
		{"docker.io/team", "nginx:1", false},
		{"docker.io", "quay.io/team/app:1", false},
	} {
		if got := matches(test.registry, test.image); got != test.want {
			t.Errorf("a login for %s and the image %s: %t, want %t", test.registry, test.image, got, test.want)
		}
	}
}

// The field auth of a login wins over the others, if it has a user name and a password.
// Some programs write it without padding.
func TestLoginInOneField(t *testing.T) {
	for auth, want := range map[string]string{
		"": "u p", "!": "u p", "Zm9v": "u p", // the last one has no password
		"Zm9vOmJhcg==": "foo bar", "Zm9vOmJhcg": "foo bar", "Zm9vOmJhcg==\n": "foo bar", "Zm9vOmJhcjpiYXo=": "foo bar:baz",
	} {
		raw := fmt.Appendf(nil, `{"auths":{"registry.example.com":{"username":"u","password":"p","auth":%q}}}`, auth)
		secret := &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: raw}}
		got := Credentials("registry.example.com/app:1", slices.Values([]*v1.Secret{secret}))
		if len(got) != 1 || got[0].Auth.GetUsername()+" "+got[0].Auth.GetPassword() != want {
			t.Errorf("auth %q: %+v, want %s", auth, got, want)
		}
	}
}
