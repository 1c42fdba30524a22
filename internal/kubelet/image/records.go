package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// Records remember on disk which images this node's kubelets have pulled and
// whose credentials opened them, so that an image is not there for everybody
// because it is there (KEP-2535):
//
//	DIR/pulling/sha256-HASH   an ImagePullIntent: a pull of that name began
//	DIR/pulled/sha256-HASH    an ImagePulledRecord: who may use the image of that id
//	DIR/preloaded/sha256-HASH  the names that the image of that id had before its first pull
//
// An intent outlives a kubelet that dies while it pulls: the image that is
// there afterwards then counts as pulled by credentials that are not known.
type Records struct {
	FS        files.FS
	Dir       string
	Policy    kubeletconfig.ImagePullCredentialsVerificationPolicy
	Allowlist []string // of images for NeverVerifyAllowlistedImages

	mu      sync.Mutex     // guards intents and the files
	intents map[string]int // pulls under way, by image
}

const (
	pullingDir = "pulling"
	pulledDir  = "pulled"
	// preloadedDir is beside upstream's: an image that is pulled by one name
	// must stay what it was by the others.
	preloadedDir = "preloaded"

	maxRecord  = 1 << 20 // bytes of a file
	maxSecrets = 500     // of one image; the oldest are forgotten first
)

// CheckPolicy refuses policies that nobody knows.
func CheckPolicy(policy kubeletconfig.ImagePullCredentialsVerificationPolicy, allowlist []string) error {
	switch policy {
	case kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages, kubeletconfig.AlwaysVerify:
		if len(allowlist) > 0 {
			return fmt.Errorf("preloadedImagesVerificationAllowlist: only imagePullCredentialsVerificationPolicy %s has one, not %s", kubeletconfig.NeverVerifyAllowlistedImages, policy)
		}
	case kubeletconfig.NeverVerifyAllowlistedImages:
	default:
		return fmt.Errorf("imagePullCredentialsVerificationPolicy: unknown policy %q: use %s, %s, %s or %s", policy,
			kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages, kubeletconfig.NeverVerifyAllowlistedImages, kubeletconfig.AlwaysVerify)
	}
	return nil
}

func (r *Records) path(dir, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(r.Dir, dir, "sha256-"+hex.EncodeToString(sum[:]))
}

// write replaces a file as a whole.
func (r *Records) write(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := r.FS.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return r.FS.Replace(path, raw, 0o600)
}

func (r *Records) read(path string, value any) error {
	raw, err := r.FS.ReadFile(path, maxRecord)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, value)
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: kind}
}

// Begin notes that an image is going to be pulled. Each Begin that succeeds is
// followed by one End or Pulled.
func (r *Records) Begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.write(r.path(pullingDir, image), &kubeletconfig.ImagePullIntent{TypeMeta: typeOf("ImagePullIntent"), Image: image}); err != nil {
		return fmt.Errorf("failed to record image pull intent: %w", err)
	}
	if r.intents == nil {
		r.intents = map[string]int{}
	}
	r.intents[image]++
	return nil
}

// End notes that a pull came to nothing.
func (r *Records) End(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end(image)
}

func (r *Records) end(image string) error {
	if r.intents[image] > 1 {
		r.intents[image]--
		return nil
	}
	delete(r.intents, image)
	if err := r.FS.Remove(r.path(pullingDir, image)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Pulled notes that an image, as the runtime lists it now, was pulled by a name
// with the credentials of a secret, or with none if that is nil. Where that
// cannot be written the intent stays, so that nobody uses the image unchecked.
func (r *Records) Pulled(name string, image *runtimeapi.Image, with *kubeletconfig.ImagePullSecret) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.keepPreloaded(name, image); err != nil {
		return err
	}
	if err := r.add(name, image.GetId(), credentialsOf(with)); err != nil {
		return err
	}
	return r.end(name)
}

// preloaded are the names of an image that were there before it was pulled by
// another.
type preloaded struct {
	ImageRef string   `json:"imageRef"`
	Names    []string `json:"names"` // whole ones
}

// keepPreloaded notes which names of an image that is being pulled were there
// before: at its first pull all but those that are being pulled.
func (r *Records) keepPreloaded(pulling string, image *runtimeapi.Image) error {
	record, err := r.record(image.GetId())
	if err != nil {
		return nil // then nobody knows who pulled it by which name
	}
	path := r.path(preloadedDir, image.GetId())
	kept := &preloaded{ImageRef: image.GetId()}
	if record == nil {
		names, err := r.notPulling(slices.Concat(image.GetRepoTags(), image.GetRepoDigests()))
		if err != nil {
			return nil
		}
		kept.Names = names
	} else if err := r.read(path, kept); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	own, err := repository(pulling)
	if err != nil {
		return err
	}
	kept.Names = slices.DeleteFunc(kept.Names, func(name string) bool {
		repo, err := repository(name)
		return err != nil || name == whole(pulling) || repo == own && strings.Contains(name, "@") // the digest comes with the pull
	})
	if len(kept.Names) == 0 && record == nil {
		return nil
	}
	return r.write(path, kept)
}

// notPulling returns, as whole names, those that no pull is under way of, in
// this kubelet or in one that died.
func (r *Records) notPulling(names []string) ([]string, error) {
	began, err := r.interrupted()
	if err != nil {
		return nil, err
	}
	for name := range r.intents {
		began[whole(name)] = name
	}
	var others []string
	for _, name := range names {
		if name = whole(name); began[name] == "" {
			others = append(others, name)
		}
	}
	return others, nil
}

// wasPreloaded says whether an image was there by that name before it was
// pulled by another.
func (r *Records) wasPreloaded(name, id string) bool {
	kept := &preloaded{}
	return r.read(r.path(preloadedDir, id), kept) == nil && kept.ImageRef == id && slices.Contains(kept.Names, whole(name))
}

func credentialsOf(secret *kubeletconfig.ImagePullSecret) *kubeletconfig.ImagePullCredentials {
	if secret == nil {
		return &kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	}
	return &kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{*secret}}
}

// repository is the name of an image without its tag and digest.
func repository(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	return named.Name(), nil
}

// record reads what is known of an image; nil is nothing.
func (r *Records) record(id string) (*kubeletconfig.ImagePulledRecord, error) {
	record := &kubeletconfig.ImagePulledRecord{}
	err := r.read(r.path(pulledDir, id), record)
	if errors.Is(err, fs.ErrNotExist) || err == nil && record.ImageRef != id {
		return nil, nil
	}
	return record, err
}

// add merges credentials into the record of an image; nil are unknown ones.
func (r *Records) add(image, id string, credentials *kubeletconfig.ImagePullCredentials) error {
	name, err := repository(image)
	if err != nil {
		return err
	}
	record, err := r.record(id)
	changed := record == nil || err != nil
	if changed { // a record that cannot be read lets nobody in
		record = &kubeletconfig.ImagePulledRecord{TypeMeta: typeOf("ImagePulledRecord"), ImageRef: id}
	}
	if credentials != nil {
		merged, differs := merge(record.CredentialMapping[name], credentials)
		if changed = changed || differs; differs {
			if record.CredentialMapping == nil {
				record.CredentialMapping = map[string]kubeletconfig.ImagePullCredentials{}
			}
			record.CredentialMapping[name] = merged
		}
	}
	if !changed {
		return nil
	}
	record.LastUpdatedTime = metav1.Now()
	return r.write(r.path(pulledDir, id), record)
}

// merge adds credentials to those known. What everybody may use needs none.
func merge(known kubeletconfig.ImagePullCredentials, more *kubeletconfig.ImagePullCredentials) (merged kubeletconfig.ImagePullCredentials, changed bool) {
	switch {
	case known.NodePodsAccessible:
		return known, false
	case more.NodePodsAccessible:
		return kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}, true
	}
	for _, secret := range more.KubernetesSecrets {
		if slices.Contains(known.KubernetesSecrets, secret) {
			continue
		}
		changed = true
		known.KubernetesSecrets = append(slices.DeleteFunc(slices.Clone(known.KubernetesSecrets), func(s kubeletconfig.ImagePullSecret) bool {
			return same(s, secret)
		}), secret)
		known.KubernetesSecrets = known.KubernetesSecrets[max(len(known.KubernetesSecrets)-maxSecrets, 0):]
	}
	return known, changed
}

// same says whether two secrets are one object, whatever was in it.
func same(a, b kubeletconfig.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// Allows says whether a pod with the given pull secrets may use an image that
// is on the node without pulling it once more.
func (r *Records) Allows(image, id string, secrets []kubeletconfig.ImagePullSecret) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.record(id)
	if err != nil {
		return false, err
	}
	pulled := record != nil && !r.wasPreloaded(image, id) || r.intents[image] > 0
	if !pulled {
		intent := &kubeletconfig.ImagePullIntent{}
		switch err := r.read(r.path(pullingDir, image), intent); {
		case err == nil:
			pulled = intent.Image == image
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
	}
	name, err := repository(image)
	if err != nil {
		return false, err
	}
	if !r.verifies(name, pulled) {
		return true, nil
	}
	if record == nil {
		return false, nil
	}
	known := record.CredentialMapping[name]
	if known.NodePodsAccessible {
		return true, nil
	}
	for _, secret := range secrets {
		for _, k := range known.KubernetesSecrets {
			if secret.CredentialHash != "" && secret.CredentialHash == k.CredentialHash || same(secret, k) {
				return true, r.add(image, id, credentialsOf(&secret))
			}
		}
	}
	return false, nil
}

// verifies says whether the policy asks for credentials.
func (r *Records) verifies(repository string, pulledByKubelet bool) bool {
	switch r.Policy {
	case kubeletconfig.NeverVerify:
		return false
	case kubeletconfig.NeverVerifyPreloadedImages:
		return pulledByKubelet
	case kubeletconfig.NeverVerifyAllowlistedImages:
		return pulledByKubelet || !slices.ContainsFunc(r.Allowlist, func(pattern string) bool {
			if folder, ok := strings.CutSuffix(pattern, "/*"); ok {
				return strings.HasPrefix(repository, folder+"/")
			}
			return pattern == repository
		})
	}
	return true
}

// Recover turns the intents of a kubelet that died into records of the images
// that are there by now, with credentials that nobody knows.
func (r *Records) Recover(images []*runtimeapi.Image) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	intents, err := r.interrupted()
	if err != nil {
		return err
	}
	var failed []error
	for _, i := range images {
		for _, name := range slices.Concat(i.GetRepoDigests(), i.GetRepoTags()) {
			image, began := intents[whole(name)]
			if !began {
				continue
			}
			err := r.add(image, i.GetId(), nil)
			if err == nil {
				err = r.end(image)
			}
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// interrupted are the names, as users wrote them, of the images whose pulls
// have begun and not ended, by what the runtime says.
func (r *Records) interrupted() (map[string]string, error) {
	names, err := r.FS.ReadDir(filepath.Join(r.Dir, pullingDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	intents := map[string]string{}
	for _, name := range names {
		intent := &kubeletconfig.ImagePullIntent{}
		if err := r.read(filepath.Join(r.Dir, pullingDir, name), intent); err == nil {
			intents[whole(intent.Image)] = intent.Image
		}
	}
	return intents, nil
}

// whole is the name of an image with all that may be left out.
func whole(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return reference.TagNameOnly(named).String()
}

// Prune forgets images that are gone, unless they came after the given time,
// as far as records tell it: in whole seconds.
func (r *Records) Prune(images []*runtimeapi.Image, before time.Time) error {
	before = before.Truncate(time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	there := map[string]bool{}
	for _, i := range images {
		there[i.GetId()] = true
	}
	names, err := r.FS.ReadDir(filepath.Join(r.Dir, pulledDir))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var failed []error
	for _, name := range names {
		path := filepath.Join(r.Dir, pulledDir, name)
		record := &kubeletconfig.ImagePulledRecord{}
		if err := r.read(path, record); err == nil && (there[record.ImageRef] || !record.LastUpdatedTime.Time.Before(before)) {
			continue
		}
		failed = append(failed, r.FS.Remove(path))
		if err := r.FS.Remove(filepath.Join(r.Dir, preloadedDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of the same id
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
