package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/bounded"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// Providers are the credential providers of the node: programs that return the
// logins for images (KEP-2133). Its methods may be called from any goroutine.
type Providers struct {
	all     []*provider // in the order of the configuration
	metrics *providerMetrics
}

// provider is one program with the logins that it has returned.
type provider struct {
	config  kubeletconfigv1.CredentialProvider
	path    string
	metrics *providerMetrics

	mu     sync.Mutex // guards cached; held while the program runs, so that it runs once for many pods
	cached map[cacheKey]answer
}

// cacheKey is for whom and what an answer is: an image, a registry or globalKey.
type cacheKey struct{ caller, what string }

// answer is an answer of a program until it expires.
type answer struct {
	auth    map[string]credentialv1.AuthConfig
	expires time.Time
}

const (
	pluginTimeout = time.Minute
	// maxPluginAnswer is the size of the largest answer in bytes.
	maxPluginAnswer = 1 << 20
	// maxProviderConfiguration is the size of the largest configuration in bytes.
	maxProviderConfiguration = 1 << 20
	// maxCachedAnswers is how many answers of one program are kept.
	maxCachedAnswers = 1024
	// globalKey is the cache key of answers that hold for all images.
	globalKey = "global"
)

// ReadProviders reads the providers of a configuration file, or of all files in a
// directory in the order of their names. Their programs are in binDirectory.
func ReadProviders(config, binDirectory string) (*Providers, error) {
	paths := []string{config}
	info, err := os.Stat(config)
	if err == nil && info.IsDir() {
		paths, err = configurationFiles(config)
	}
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	p := &Providers{metrics: newProviderMetrics()}
	var errs []error
	sum := sha256.New() // of the files, each after its length in bytes
	for _, path := range paths {
		errs = append(errs, p.read(path, binDirectory, sum))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(p.all) == 0 {
		return nil, fmt.Errorf("--image-credential-provider-config=%s: at least 1 item in providers is required", config)
	}
	p.metrics.config.WithLabelValues("sha256:" + hex.EncodeToString(sum.Sum(nil))).Set(1)
	return p, nil
}

func configurationFiles(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory) // sorted by name
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			paths = append(paths, filepath.Join(directory, e.Name()))
		}
	}
	return paths, err
}

// read adds the providers of one file, and the file to sum.
func (p *Providers) read(path, binDirectory string, sum io.Writer) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("--image-credential-provider-config=%s: %w", path, fmt.Errorf(format, args...))
	}
	raw, err := files.OS{}.ReadFile(path, maxProviderConfiguration)
	if err != nil {
		return fail("%w", err)
	}
	_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(raw))))
	_, _ = sum.Write(raw)
	file := &kubeletconfigv1.CredentialProviderConfig{}
	if err := yaml.UnmarshalStrict(raw, file); err != nil {
		return fail("%w", err)
	}
	group, version, _ := strings.Cut(file.APIVersion, "/")
	if group != kubeletconfigv1.GroupName || !slices.Contains([]string{"v1", "v1beta1", "v1alpha1"}, version) || file.Kind != "CredentialProviderConfig" {
		return fail("want apiVersion: %s and kind: CredentialProviderConfig, got %q and %q", kubeletconfigv1.SchemeGroupVersion, file.APIVersion, file.Kind)
	}
	var errs []error
	for i := range file.Providers {
		one := &file.Providers[i]
		at := fmt.Sprintf("providers[%d] %q", i, one.Name)
		for _, check := range []struct {
			wrong bool
			what  string
		}{
			{one.Name == "" || one.Name == "." || one.Name == ".." || strings.ContainsAny(one.Name, "/\\ \t\n"), "name must be the name of a program in --image-credential-provider-bin-dir"},
			{slices.ContainsFunc(p.all, func(o *provider) bool { return o.config.Name == one.Name }), "name is not unique"},
			{len(one.MatchImages) == 0, "at least 1 item in matchImages is required"},
			{slices.ContainsFunc(one.MatchImages, noURL), fmt.Sprintf("matchImages %q: each must be a URL without its scheme", one.MatchImages)},
			{one.DefaultCacheDuration == nil, "defaultCacheDuration is required"},
			{one.DefaultCacheDuration != nil && one.DefaultCacheDuration.Duration < 0, "defaultCacheDuration must not be negative"},
			{!slices.Contains(pluginVersions(), one.APIVersion), fmt.Sprintf("apiVersion %q: want one of %q", one.APIVersion, pluginVersions())},
		} {
			if check.wrong {
				errs = append(errs, fail("%s: %s", at, check.what))
			}
		}
		for _, problem := range tokenProblems(one) {
			errs = append(errs, fail("%s: %s", at, problem))
		}
		program := filepath.Join(binDirectory, one.Name)
		if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			errs = append(errs, fail("%s: --image-credential-provider-bin-dir=%s has no such program", at, binDirectory))
		}
		p.all = append(p.all, &provider{config: *one, path: program, metrics: p.metrics, cached: map[cacheKey]answer{}})
	}
	return errors.Join(errs...)
}

// noURL reports whether a pattern of images cannot match any.
func noURL(pattern string) bool {
	_, err := url.Parse("https://" + pattern)
	return err != nil
}

// pluginVersions are the versions of the protocol that programs may speak.
func pluginVersions() []string {
	const group = credentialv1.GroupName
	return []string{group + "/v1", group + "/v1beta1", group + "/v1alpha1"}
}

// Credentials returns the logins of all providers for an image, the most
// specific first. Providers get its repository, as upstream's. account is that of
// the pod, or nil. Providers that fail are logged and left out.
func (p *Providers) Credentials(ctx context.Context, image string, account *Account) []Credential {
	if p == nil {
		return nil
	}
	if name, err := repository(image); err == nil {
		image = name
	}
	var found []match
	answered := map[string]bool{} // registries
	for _, one := range p.all {
		if !one.matches(image) {
			continue
		}
		auth, by, err := one.ask(ctx, image, account)
		if err != nil {
			klog.FromContext(ctx).Error(err, "A credential provider failed", "provider", one.config.Name, "image", image)
			continue
		}
		logins := map[string]dockerEntry{}
		for registry, login := range auth {
			if !answered[registry] {
				answered[registry] = true
				logins[registry] = dockerEntry{Username: login.Username, Password: login.Password}
			}
		}
		found = append(found, loginsFor(image, logins, func(*runtimeapi.AuthConfig) Credential { return Credential{Account: by} })...)
	}
	return ordered(found)
}

// matches reports whether the provider is for an image.
func (p *provider) matches(image string) bool {
	return slices.ContainsFunc(p.config.MatchImages, func(pattern string) bool { return matches(pattern, image) })
}

// ask returns the provider's answer for an image, from its cache if it has one, and
// the service account whose token it got.
func (p *provider) ask(ctx context.Context, image string, account *Account) (map[string]credentialv1.AuthConfig, kubeletconfig.ImagePullServiceAccount, error) {
	by, ok, err := p.caller(ctx, account)
	if err != nil || !ok {
		return nil, by.account, err
	}
	auth, err := p.askAs(ctx, image, by)
	return auth, by.account, err
}

func (p *provider) askAs(ctx context.Context, image string, by caller) (map[string]credentialv1.AuthConfig, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	host, _, _ := strings.Cut(image, "/")
	for _, key := range []string{image, host, globalKey} {
		if kept, ok := p.cached[cacheKey{by.key, key}]; ok && now.Before(kept.expires) {
			return kept.auth, nil
		}
	}
	response, err := p.run(ctx, image, by)
	p.metrics.duration.WithLabelValues(p.config.Name).Observe(time.Since(now).Seconds())
	if err != nil {
		p.metrics.errors.WithLabelValues(p.config.Name).Inc()
		return nil, err
	}
	duration := p.config.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		duration = response.CacheDuration.Duration
	}
	key := map[credentialv1.PluginCacheKeyType]string{
		credentialv1.ImagePluginCacheKeyType: image, credentialv1.RegistryPluginCacheKeyType: host, credentialv1.GlobalPluginCacheKeyType: globalKey,
	}[response.CacheKeyType]
	if key == "" {
		return nil, fmt.Errorf("cacheKeyType %q: want Image, Registry or Global", response.CacheKeyType)
	}
	if duration <= 0 {
		return response.Auth, nil
	}
	for old, kept := range p.cached {
		if !now.Before(kept.expires) || len(p.cached) >= maxCachedAnswers {
			delete(p.cached, old)
		}
	}
	p.cached[cacheKey{by.key, key}] = answer{auth: response.Auth, expires: now.Add(duration)}
	return response.Auth, nil
}

// run runs the program: the request is its standard input, the response its
// standard output.
func (p *provider) run(ctx context.Context, image string, by caller) (*credentialv1.CredentialProviderResponse, error) {
	request, err := json.Marshal(credentialv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: p.config.APIVersion, Kind: "CredentialProviderRequest"}, Image: image,
		ServiceAccountToken: by.token, ServiceAccountAnnotations: by.annotations,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	program := exec.CommandContext(ctx, p.path, p.config.Args...)
	program.Env = os.Environ()
	for _, e := range p.config.Env {
		program.Env = append(program.Env, e.Name+"="+e.Value)
	}
	program.Stdin = bytes.NewReader(request)
	program.WaitDelay = time.Second // for what the program leaves behind with its output open
	output, complaints := bounded.NewBuffer(maxPluginAnswer), bounded.NewBuffer(4<<10)
	program.Stdout, program.Stderr = output, complaints
	if err := program.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", p.path, err, strings.TrimSpace(complaints.String()))
	}
	if output.IsCut() {
		return nil, fmt.Errorf("%s: the response is larger than %d bytes", p.path, maxPluginAnswer)
	}
	response := &credentialv1.CredentialProviderResponse{}
	if err := json.Unmarshal(output.Bytes(), response); err != nil {
		return nil, fmt.Errorf("%s: the response is not valid: %w", p.path, err)
	}
	if response.APIVersion != p.config.APIVersion || response.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("%s: the response is a %s of %s, want a CredentialProviderResponse of %s", p.path, response.Kind, response.APIVersion, p.config.APIVersion)
	}
	return response, nil
}
