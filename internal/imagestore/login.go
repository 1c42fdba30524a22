package imagestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/bounded"
	"github.com/coracle-io/coracle/internal/kubelet/image"
)

// Login is a user of a registry. The zero value is none.
type Login struct{ User, Password string }

// auth returns the login for the registry of an image. A mirror of that registry
// does not get it.
func (l Login) auth(named reference.Named) *runtimeapi.AuthConfig {
	if l == (Login{}) {
		return nil
	}
	server := reference.Domain(named)
	if server == dockerHub {
		server = "registry-1.docker.io"
	}
	auth := &runtimeapi.AuthConfig{Username: l.User, Password: l.Password, ServerAddress: "https://" + server}
	if l.User == tokenUser {
		auth.Username, auth.Password, auth.IdentityToken = "", "", l.Password
	}
	return auth
}

const (
	dockerHub = "docker.io"
	// dockerHubKey is the key of Docker Hub in docker's configuration.
	dockerHubKey = "https://index.docker.io/v1/"
	// tokenUser is the user that credential helpers return with an identity token
	// in place of a password.
	tokenUser = "<token>"
)

// DockerConfig returns the path of the user's configuration file of docker,
// which docker login writes.
func DockerConfig() string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return filepath.Join(dir, "config.json")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".docker", "config.json")
}

// CheckOneRegistry returns an error if images are of several registries, so that
// a login is not offered to those that it is not for.
func CheckOneRegistry(names []string) error {
	var registries []string
	for _, name := range names {
		if named, err := reference.ParseDockerRef(name); err == nil { // Pull reports the others
			registries = append(registries, reference.Domain(named))
		}
	}
	slices.Sort(registries)
	if registries = slices.Compact(registries); len(registries) > 1 {
		return fmt.Errorf("the images are from the registries %s: run the command once for each registry, with its own credentials", strings.Join(registries, ", "))
	}
	return nil
}

// DockerLogin returns the login for the registry of an image from a
// configuration file of docker: of its credential helpers or of the file itself. It
// returns no login if the file does not exist or has none for the registry.
func DockerLogin(ctx context.Context, file, name string) (Login, error) {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return Login{}, err
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Login{}, nil
	}
	if err != nil {
		return Login{}, err
	}
	var config struct {
		Auths       map[string]any    `json:"auths"`
		CredsStore  string            `json:"credsStore"`
		CredHelpers map[string]string `json:"credHelpers"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return Login{}, fmt.Errorf("%s: %w", file, err)
	}
	registry := reference.Domain(named)
	key := registry
	if registry == dockerHub {
		key = dockerHubKey
	}
	helper := config.CredHelpers[registry]
	if helper == "" {
		helper = config.CredHelpers[key]
	}
	if helper == "" {
		helper = config.CredsStore
	}
	if helper != "" {
		if login, err := helperLogin(ctx, helper, key); err != nil || login != (Login{}) {
			return login, err
		}
	}
	logins := image.Credentials(named.String(), slices.Values([]*v1.Secret{{
		Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: raw},
	}}))
	for _, l := range logins {
		switch {
		case l.Auth.GetIdentityToken() != "":
			return Login{tokenUser, l.Auth.GetIdentityToken()}, nil
		case l.Auth.GetUsername() != "":
			return Login{l.Auth.GetUsername(), l.Auth.GetPassword()}, nil
		}
	}
	return Login{}, nil
}

// Bounds on what a credential helper may write, in bytes: the answer, and what it says of
// an error.
const (
	mostAnswer    = 64 << 10
	mostComplaint = 4 << 10
)

// helperLogin asks a credential helper of docker for the login of a registry. A
// helper that has none is no error.
func helperLogin(ctx context.Context, helper, registry string) (Login, error) {
	cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
	output, problem := bounded.NewBuffer(mostAnswer), bounded.NewBuffer(mostComplaint)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(registry), output, problem
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(output.String() + problem.String())
		if strings.Contains(said, "credentials not found") {
			return Login{}, nil
		}
		return Login{}, fmt.Errorf("credential helper docker-credential-%s of docker's configuration: %w: %s", helper, err, said)
	}
	if output.IsCut() {
		return Login{}, fmt.Errorf("credential helper docker-credential-%s of docker's configuration: the answer is longer than %d bytes", helper, mostAnswer)
	}
	var answer struct{ Username, Secret string }
	if err := json.Unmarshal(output.Bytes(), &answer); err != nil {
		return Login{}, fmt.Errorf("credential helper docker-credential-%s of docker's configuration: %w", helper, err)
	}
	return Login{answer.Username, answer.Secret}, nil
}
