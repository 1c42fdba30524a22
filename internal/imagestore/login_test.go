package imagestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distribution/reference"
)

// TestDockerLogin checks which login of docker's configuration an image gets.
func TestDockerLogin(t *testing.T) {
	dir := t.TempDir()
	helper := `#!/bin/sh
case $(cat) in
helped.example) echo '{"ServerURL":"x","Username":"helper","Secret":"h"}';;
token.example) echo '{"Username":"<token>","Secret":"t"}';;
broken.example) echo 'the wallet is locked'; exit 1;;
talkative.example) head -c 100000 /dev/zero | tr '\0' x;;
complaining.example) echo 'the wallet is locked' >&2; head -c 100000 /dev/zero | tr '\0' x >&2; exit 1;;
*) echo 'credentials not found in native keychain'; exit 1;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	file := filepath.Join(dir, "config.json")
	// dXNlcjpzZWNyZXQ= is user:secret.
	config := `{"auths": {"https://index.docker.io/v1/": {"auth": "dXNlcjpzZWNyZXQ="}, "plain.example:5000": {"username": "plain", "password": "p"}, "other.example": {}},
		"credHelpers": {"helped.example": "test", "token.example": "test", "broken.example": "test", "talkative.example": "test", "complaining.example": "test", "absent.example": "none", "plain.example:5000": "test"}}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		image string
		want  Login
		err   string
	}{
		{image: "busybox", want: Login{"user", "secret"}},
		{image: "docker.io/me/app:1", want: Login{"user", "secret"}},
		{image: "plain.example:5000/app", want: Login{"plain", "p"}},
		{image: "helped.example/app", want: Login{"helper", "h"}},
		{image: "token.example/app", want: Login{"<token>", "t"}},
		{image: "other.example/app"},
		{image: "nowhere.example/app"},
		{image: "broken.example/app", err: "docker-credential-test of docker's configuration: exit status 1: the wallet is locked"},
		{image: "talkative.example/app", err: "docker-credential-test of docker's configuration: the answer is longer than 65536 bytes"},
		{image: "complaining.example/app", err: "exit status 1: the wallet is locked"},
		{image: "absent.example/app", err: "docker-credential-none"},
	} {
		got, err := DockerLogin(t.Context(), file, c.image)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v; want %v, %q", c.image, got, err, c.want, c.err)
		}
		if err != nil && len(err.Error()) > 2*mostComplaint {
			t.Errorf("%s: the error has %d bytes", c.image, len(err.Error()))
		}
	}
	if got, err := DockerLogin(t.Context(), filepath.Join(dir, "absent.json"), "busybox"); err != nil || got != (Login{}) {
		t.Errorf("without a file: %v, %v", got, err)
	}
}

// TestLoginIsForItsRegistry checks that mirrors do not get the login.
func TestLoginIsForItsRegistry(t *testing.T) {
	for name, want := range map[string]string{"busybox": "https://registry-1.docker.io", "a.example:5000/b": "https://a.example:5000"} {
		named, err := reference.ParseDockerRef(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Login{"user", "secret"}).auth(named); got.GetServerAddress() != want {
			t.Errorf("%s: server %q, want %q", name, got.GetServerAddress(), want)
		}
		if got := (Login{}).auth(named); got != nil {
			t.Errorf("%s: %v without a login", name, got)
		}
	}
}
