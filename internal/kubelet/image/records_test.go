package image

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

const private = "registry.example.com/private:1"

// bench is a node with images and pods that request them.
type bench struct {
	t       *testing.T
	runtime *inmemorytest.Runtime
	files   *files.Memory
	puller  *puller
}

func newBench(t *testing.T) *bench {
	d := &bench{t: t, runtime: inmemorytest.New(), files: &files.Memory{}}
	d.restart(kubeletconfig.NeverVerifyPreloadedImages)
	return d
}

// restart replaces the puller, as a restart of the kubelet does.
func (d *bench) restart(policy kubeletconfig.ImagePullCredentialsVerificationPolicy, allowlist ...string) {
	d.t.Helper()
	d.puller = newPuller(d.runtime.Images(), 0)
	d.puller.Records = &records{FS: d.files, Dir: "/var/lib/kubelet/image_manager", Policy: policy, Allowlist: allowlist}
	images, err := d.runtime.Images().ListImages(d.t.Context(), nil)
	if err == nil {
		err = d.puller.Records.Recover(images)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func secret(name, password string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths": {"registry.example.com": {"username": "u", "password": %q}}}`, password)},
	}
}

// asks returns the reason why a pod with these secrets does not get the image, ""
// if it does.
func (d *bench) asks(image string, policy v1.PullPolicy, secrets ...*v1.Secret) string {
	d.t.Helper()
	c := &v1.Container{Image: image, ImagePullPolicy: policy}
	credentials := func(name string) []Credential { return Credentials(name, slices.Values(secrets)) }
	d.puller.Forget("pod")
	_, err := d.puller.Ensure(d.t.Context(), c, "pod", Logins{Secrets: credentials}, nil, func(string, string, string) {})
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Reason
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return ""
}

func (d *bench) want(what, got, want string) {
	d.t.Helper()
	if got != want {
		d.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// An image that was pulled with a secret requires that secret.
func TestPresentImageNeedsItsSecret(t *testing.T) {
	d := newBench(t)
	d.runtime.Images().NeedPassword(private, "right")
	d.want("the owner", d.asks(private, v1.PullIfNotPresent, secret("owner", "right")), "")
	for range 2 {
		d.want("without a secret", d.asks(private, v1.PullIfNotPresent), ErrImagePull)
		d.want("without a secret, Never", d.asks(private, v1.PullNever), ErrImageNeverPull)
		d.want("with a wrong secret", d.asks(private, v1.PullIfNotPresent, secret("other", "wrong")), ErrImagePull)
		pulls := d.runtime.Images().Pulls(private)
		d.want("the owner again", d.asks(private, v1.PullNever, secret("owner", "right")), "")
		d.want("the same credentials elsewhere", d.asks(private, v1.PullNever, secret("copy", "right")), "")
		if n := d.runtime.Images().Pulls(private); n != pulls {
			t.Errorf("the image was pulled %d times more for pods that may use it", n-pulls)
		}
		d.restart(kubeletconfig.NeverVerifyPreloadedImages)
	}
	d.want("the owner's new password", d.asks(private, v1.PullNever, secret("owner", "renewed")), "")
}

func TestImageWithoutSecret(t *testing.T) {
	d := newBench(t)
	const public = "registry.example.com/public:1"
	d.want("pulled without a secret", d.asks(public, v1.PullIfNotPresent), "")
	d.want("by another", d.asks(public, v1.PullNever, secret("other", "any")), "")
	d.want("pulled with a secret", d.asks("registry.example.com/both:1", v1.PullIfNotPresent, secret("owner", "any")), "")
	d.want("by one who needs to ask", d.asks("registry.example.com/both:1", v1.PullNever), ErrImageNeverPull)
	d.want("by one who asked", d.asks("registry.example.com/both:1", v1.PullIfNotPresent), "")
	d.want("by one who asks no more", d.asks("registry.example.com/both:1", v1.PullNever), "")
}

func TestPolicies(t *testing.T) {
	const pulledListed = "registry.example.com/listed/private:1"
	for policy, want := range map[kubeletconfig.ImagePullCredentialsVerificationPolicy]struct{ preloaded, listed, pulled, pulledListed string }{
		kubeletconfig.NeverVerify:                  {"", "", "", ""},
		kubeletconfig.NeverVerifyPreloadedImages:   {"", "", ErrImageNeverPull, ErrImageNeverPull},
		kubeletconfig.NeverVerifyAllowlistedImages: {ErrImageNeverPull, "", ErrImageNeverPull, ""},
		kubeletconfig.AlwaysVerify:                 {ErrImageNeverPull, ErrImageNeverPull, ErrImageNeverPull, ErrImageNeverPull},
	} {
		d := newBench(t)
		d.runtime.AddImage("registry.example.com/preloaded:1", 1)
		d.runtime.AddImage("registry.example.com/listed/image:1", 1)
		for _, image := range []string{private, pulledListed} {
			d.runtime.Images().NeedPassword(image, "right")
			d.want("the owner of "+image, d.asks(image, v1.PullIfNotPresent, secret("owner", "right")), "")
		}
		d.restart(policy, "registry.example.com/listed/*")
		d.want(string(policy)+" preloaded", d.asks("registry.example.com/preloaded:1", v1.PullNever), want.preloaded)
		d.want(string(policy)+" listed", d.asks("registry.example.com/listed/image:1", v1.PullNever), want.listed)
		d.want(string(policy)+" pulled", d.asks(private, v1.PullNever), want.pulled)
		d.want(string(policy)+" pulled and listed", d.asks(pulledListed, v1.PullNever), want.pulledListed)
	}
	for _, policy := range []kubeletconfig.ImagePullCredentialsVerificationPolicy{"", "Sometimes"} {
		if CheckPolicy(policy, nil) == nil {
			t.Errorf("policy %q was taken", policy)
		}
	}
}

// The allowlist has names as they are in pods, or in full.
func TestAllowlist(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"alpine", "docker.io/library/alpine", true},
		{"docker.io/library/alpine", "docker.io/library/alpine", true},
		{"alpine", "registry.example.com/alpine", false},
		{"alpine:3", "docker.io/library/alpine", false},
		{"example/*", "docker.io/example/app", true},
		{"example/*", "docker.io/examples/app", false},
		{"docker.io/*", "docker.io/example/app", true},
		{"registry.example.com/*", "registry.example.com/a/b", true},
		{"registry.example.com/a/*", "registry.example.com/a", false},
		{"registry.example.com/a", "registry.example.com/a/b", false},
		{"Not A Name", "docker.io/library/alpine", false},
	} {
		if got := lists(test.pattern, test.name); got != test.want {
			t.Errorf("%q lists %s: %t, want %t", test.pattern, test.name, got, test.want)
		}
	}
}

// A pattern that would list nothing, or others than it seems to, is refused.
func TestAllowlistIsChecked(t *testing.T) {
	for pattern, want := range map[string]bool{
		"registry.example.com/a/b": true,
		"alpine":                   true,
		"registry.example.com/*":   true,
		"registry.example.com/a/*": true,
		"example/*":                true,

		"":                           false,
		"*":                          false,
		"/*":                         false,
		"registry.example.com/":      false,
		"registry.example.com/a*":    false,
		"registry.example.com/a*/b":  false,
		"registry.example.com/*/b":   false,
		"registry.example.com/*/*":   false,
		"registry.example.com/a:1":   false,
		"registry.example.com/a ":    false,
		" registry.example.com/a/*":  false,
		"registry.example.com/Upper": false,
		"alpine@sha256:" + sixtyFour: false,
	} {
		if err := CheckPolicy(kubeletconfig.NeverVerifyAllowlistedImages, []string{"alpine", pattern}); (err == nil) != want {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	if CheckPolicy(kubeletconfig.NeverVerify, []string{"alpine"}) == nil {
		t.Error("a list that the policy does not use was taken")
	}
}

const sixtyFour = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// What a kubelet of an earlier version has recorded still decides who may use an image.
// It is written in the version of this one when it changes.
func TestRecordsOfAnEarlierVersion(t *testing.T) {
	const other = "registry.example.com/other:1"
	d := newBench(t)
	d.runtime.AddImage(private, 1)
	d.runtime.AddImage(other, 1)
	pulled := d.puller.Records.path(pulledDir, "sha256:"+private)
	for path, content := range map[string]string{
		pulled: `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":"2025-01-02T03:04:05Z","imageRef":"sha256:` + private + `",` +
			`"credentialMapping":{"registry.example.com/private":{"kubernetesSecrets":[{"uid":"uid-owner","namespace":"default","name":"owner","credentialHash":"theirs"}]}}}`,
		d.puller.Records.path(pullingDir, other): `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1alpha1","image":"` + other + `"}`,
	} {
		if err := d.files.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := d.files.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.restart(kubeletconfig.NeverVerifyPreloadedImages)
	d.want("an image whose pull was interrupted", d.asks(other, v1.PullNever), ErrImageNeverPull)
	d.want("without a secret", d.asks(private, v1.PullNever), ErrImageNeverPull)
	d.want("the owner", d.asks(private, v1.PullNever, secret("owner", "right")), "")
	raw, err := d.files.ReadFile(pulled, maxRecord)
	if err != nil || !strings.Contains(string(raw), `"apiVersion":"kubelet.config.k8s.io/v1beta1"`) || !strings.Contains(string(raw), `"kind":"ImagePulledRecord"`) {
		t.Errorf("the record is %s (%v)", raw, err)
	}
	d.want("the same credentials elsewhere", d.asks(private, v1.PullNever, secret("copy", "right")), "")
}

// After a kubelet was killed during a pull, no pod may use the image without a
// pull of its own.
func TestPullThatWasInterrupted(t *testing.T) {
	d := newBench(t)
	if err := d.puller.Records.Begin(private); err != nil {
		t.Fatal(err)
	}
	d.runtime.AddImage(private, 1)
	for range 2 {
		d.restart(kubeletconfig.NeverVerifyPreloadedImages)
		d.want("who comes first", d.asks(private, v1.PullNever), ErrImageNeverPull)
	}
	if names, _ := d.files.ReadDir("/var/lib/kubelet/image_manager/pulling"); len(names) > 0 {
		t.Errorf("intents are left: %v", names)
	}
}

func TestRecordsThatCannotBeRead(t *testing.T) {
	d := newBench(t)
	d.runtime.Images().NeedPassword(private, "right")
	d.want("the owner", d.asks(private, v1.PullIfNotPresent, secret("owner", "right")), "")
	path := d.puller.Records.path(pulledDir, "sha256:"+private)
	if err := d.files.WriteFile(path, []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.want("without a secret", d.asks(private, v1.PullNever), ErrImageNeverPull)
	d.want("the owner again", d.asks(private, v1.PullIfNotPresent, secret("owner", "right")), "")
	d.want("the owner at last", d.asks(private, v1.PullNever, secret("owner", "right")), "")
}

// TestUnreadableRecordsPermitNoOne checks that a record that is damaged, or that
// the disk does not return, does not make an image count as preloaded.
func TestUnreadableRecordsPermitNoOne(t *testing.T) {
	for _, damaged := range []string{"{torn", "{}", "null", strings.Repeat(" ", maxRecord+1)} {
		d := newBench(t)
		d.runtime.Images().NeedPassword(private, "right")
		d.want("the owner", d.asks(private, v1.PullIfNotPresent, secret("owner", "right")), "")
		if err := d.files.WriteFile(d.puller.Records.path(pulledDir, "sha256:"+private), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		d.want("without a secret", d.asks(private, v1.PullNever), ErrImageNeverPull)
		images, err := d.runtime.Images().ListImages(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.puller.Records.Prune(images, time.Now().Add(time.Hour)); err == nil {
			t.Error("Prune reports no error")
		}
		d.want("without a secret, later", d.asks(private, v1.PullNever), ErrImageNeverPull)
		d.want("the owner again", d.asks(private, v1.PullIfNotPresent, secret("owner", "right")), "")
		if err := d.puller.Records.Begin(private); err != nil {
			t.Fatal(err)
		}
		if err := d.files.WriteFile(d.puller.Records.path(pullingDir, private), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		d.restart(kubeletconfig.NeverVerifyPreloadedImages)
		if allowed, err := d.puller.Records.Allows(private, "sha256:other", nil, nil); allowed || err == nil {
			t.Errorf("with a damaged intent: allowed %t, %v", allowed, err)
		}
	}
}

// TestRecordIsBounded pulls one image by more names, with more secrets, than a
// record has room for. The record stays readable and has the latest of each name.
func TestRecordIsBounded(t *testing.T) {
	disk := &files.Memory{}
	r := &records{FS: disk, Dir: "/var/lib/kubelet", Policy: kubeletconfig.NeverVerifyPreloadedImages}
	long := strings.Repeat("n", 200)
	used := func(n int) kubeletconfig.ImagePullSecret {
		return kubeletconfig.ImagePullSecret{UID: fmt.Sprint("uid", n), Namespace: long, Name: long, CredentialHash: fmt.Sprint("hash", n)}
	}
	record := &kubeletconfig.ImagePulledRecord{TypeMeta: typeOf("ImagePulledRecord"), ImageRef: "sha256:1", CredentialMapping: map[string]kubeletconfig.ImagePullCredentials{}}
	for repository := range 10 {
		var secrets []kubeletconfig.ImagePullSecret
		for n := range maxSecrets {
			secrets = append(secrets, used(n))
		}
		record.CredentialMapping[fmt.Sprint("example.com/of", repository)] = kubeletconfig.ImagePullCredentials{KubernetesSecrets: secrets}
	}
	for repository := range 8000 {
		record.CredentialMapping[fmt.Sprint("example.com/", long, repository)] = kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	}
	if err := r.write(r.path(pulledDir, "sha256:1"), fit(record, "example.com/of1")); err != nil {
		t.Fatal(err)
	}
	const image = "example.com/of1:1"
	latest := used(maxSecrets)
	if err := r.Pulled(image, &runtimeapi.Image{Id: "sha256:1"}, Credential{Secret: latest}); err != nil {
		t.Fatal(err)
	}
	if raw, err := disk.ReadFile(r.path(pulledDir, "sha256:1"), maxRecord); err != nil || len(raw) < maxRecord/2 {
		t.Errorf("the record has %d bytes (%v)", len(raw), err)
	}
	for _, test := range []struct {
		secrets []kubeletconfig.ImagePullSecret
		want    bool
	}{{nil, false}, {[]kubeletconfig.ImagePullSecret{latest}, true}, {[]kubeletconfig.ImagePullSecret{used(maxSecrets + 1)}, false}} {
		if allowed, err := r.Allows(image, "sha256:1", test.secrets, nil); err != nil || allowed != test.want {
			t.Errorf("with %d secrets: allowed %t, %v, want %t", len(test.secrets), allowed, err, test.want)
		}
	}
}

func TestRecordsOfImagesThatAreGone(t *testing.T) {
	d := newBench(t)
	d.want("pulled", d.asks(private, v1.PullIfNotPresent), "")
	images, err := d.runtime.Images().ListImages(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.files.WriteFile("/var/lib/kubelet/image_manager/pulled/.sha256-1.coracle-7", nil, 0o600); err != nil { // by a kubelet that was killed
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	for _, test := range []struct {
		images []*runtimeapi.Image
		before time.Time
		left   int
	}{{images, later, 1}, {nil, time.Now().Add(-time.Minute), 1}, {nil, later, 0}, {nil, later, 0}} {
		if err := d.puller.Records.Prune(test.images, test.before); err != nil {
			t.Fatal(err)
		}
		if names, _ := d.files.ReadDir("/var/lib/kubelet/image_manager/pulled"); len(names) != test.left {
			t.Errorf("%d images, before %v: records %v", len(test.images), test.before, names)
		}
	}
}

// The pull of a preloaded image by another name does not change who may use it
// by its first name.
func TestPreloadedImagePulledByAnotherName(t *testing.T) {
	const there, other, third = "coracle.internal/web:1.0", "registry.example.com/copy:1", "registry.example.com/third:1"
	image := &runtimeapi.Image{Id: "sha256:same", RepoTags: []string{there, other, third}, RepoDigests: []string{"registry.example.com/copy@sha256:" + strings.Repeat("0", 64)}}
	d := newBench(t)
	allows := func(want bool, name string) {
		t.Helper()
		got, err := d.puller.Records.Allows(name, image.Id, nil, nil)
		if err != nil || got != want {
			t.Errorf("%s without a secret: %v, %v, want %v", name, got, err, want)
		}
	}
	pulled := func(name string) {
		t.Helper()
		secret := kubeletconfig.ImagePullSecret{UID: "u", Namespace: "default", Name: "s", CredentialHash: "h"}
		if err := d.puller.Records.Pulled(name, image, Credential{Secret: secret}); err != nil {
			t.Fatal(err)
		}
	}
	allows(true, there)
	for _, name := range []string{other, third} { // the second is under way when the first is there
		if err := d.puller.Records.Begin(name); err != nil {
			t.Fatal(err)
		}
	}
	pulled(other)
	for range 2 {
		allows(true, there)
		allows(false, other)
		allows(false, third)
		allows(false, image.RepoDigests[0])
		d.restart(kubeletconfig.NeverVerifyPreloadedImages)
	}
	d.restart(kubeletconfig.AlwaysVerify)
	allows(false, there)
	d.restart(kubeletconfig.NeverVerifyPreloadedImages)
	if err := d.puller.Records.Begin(there); err != nil {
		t.Fatal(err)
	}
	pulled(there) // as its policy Always asks for
	allows(false, there)
	if err := d.puller.Records.Prune(nil, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if names, _ := d.files.ReadDir("/var/lib/kubelet/image_manager/preloaded"); len(names) > 0 {
		t.Errorf("names of an image that is gone are kept: %v", names)
	}
}

// Prune keeps a record that was written in the second of the listing. Without
// the record every pod could use the image.
func TestPruneKeepsWhatWasPulledMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &records{FS: &files.Memory{}, Dir: "/var/lib/kubelet", Policy: kubeletconfig.NeverVerifyPreloadedImages}
		time.Sleep(700 * time.Millisecond)
		listed := time.Now()
		if err := r.Begin("example.com/private:1"); err != nil {
			t.Fatal(err)
		}
		secret := kubeletconfig.ImagePullSecret{UID: "u", Namespace: "a", Name: "s", CredentialHash: "h"}
		if err := r.Pulled("example.com/private:1", &runtimeapi.Image{Id: "sha256:1"}, Credential{Secret: secret}); err != nil {
			t.Fatal(err)
		}
		if err := r.Prune(nil, listed); err != nil {
			t.Fatal(err)
		}
		if allowed, err := r.Allows("example.com/private:1", "sha256:1", nil, nil); allowed || err != nil {
			t.Errorf("without the secret: allowed %t, %v", allowed, err)
		}
	})
}
