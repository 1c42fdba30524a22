package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// records stores on disk which images this node's kubelets have pulled and with
// whose credentials, so that a pod cannot use an image of another pod only
// because it is on the node (KEP-2535):
//
//	DIR/pulling/sha256-HASH    an ImagePullIntent: a pull of the name has begun
//	DIR/pulled/sha256-HASH     an ImagePulledRecord: who may use the image with the id
//	DIR/preloaded/sha256-HASH  names of the image with the id before its first pull
//
// An intent outlives a kubelet that is killed during the pull. The image then
// counts as pulled with unknown credentials.
type records struct {
	FS        files.FS
	Dir       string
	Policy    kubeletconfig.ImagePullCredentialsVerificationPolicy
	Allowlist []string // of images for NeverVerifyAllowlistedImages

	checks *prometheus.CounterVec // by result; nil: not counted

	mu      sync.Mutex     // guards intents and the files
	intents map[string]int // pulls under way, by image
}

const (
	pullingDir = "pulling"
	pulledDir  = "pulled"
	// preloadedDir is not upstream's. The pull of an image by one name must not
	// change who may use it by its other names.
	preloadedDir = "preloaded"

	maxRecord  = 1 << 20 // bytes of a file
	maxSecrets = 500     // and as many service accounts of one repository of an image; the oldest are forgotten first
)

func (r *records) path(dir, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(r.Dir, dir, "sha256-"+hex.EncodeToString(sum[:]))
}

// write replaces a file atomically.
func (r *records) write(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := r.FS.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return r.FS.Replace(path, raw, 0o600)
}

func (r *records) read(path string, value any) error {
	raw, err := r.FS.ReadFile(path, maxRecord)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, value)
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: kind}
}

// Begin records that the pull of an image begins. Each successful Begin must be
// followed by one End or Pulled.
func (r *records) Begin(image string) error {
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

// End records that a pull failed.
func (r *records) End(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end(image)
}

func (r *records) end(image string) error {
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

// Pulled records that an image, as the runtime lists it now, was pulled by a
// name with a credential, which may be empty.
// If writing fails, the intent stays, so that the image cannot be used without a
// check.
func (r *records) Pulled(name string, image *runtimeapi.Image, with Credential) error {
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

// preloaded are the names that an image had before it was pulled by another
// name.
type preloaded struct {
	ImageRef string   `json:"imageRef"`
	Names    []string `json:"names"` // with domain and tag
}

// keepPreloaded records which names of an image that is being pulled it had
// before. At its first pull those are all names without a pull in progress.
func (r *records) keepPreloaded(pulling string, image *runtimeapi.Image) error {
	record, err := r.record(image.GetId())
	if err != nil {
		return nil // the names are unknown
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

// notPulling returns, with domain and tag, the names without a pull in progress
// in this kubelet or in one that was killed.
func (r *records) notPulling(names []string) ([]string, error) {
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

// wasPreloaded reports whether an image had the name before it was pulled by
// another name.
func (r *records) wasPreloaded(name, id string) bool {
	kept := &preloaded{}
	return r.read(r.path(preloadedDir, id), kept) == nil && kept.ImageRef == id && slices.Contains(kept.Names, whole(name))
}

// credentialsOf returns who may use an image that was pulled with a credential: all
// pods of the node if it is the node's.
func credentialsOf(with Credential) *kubeletconfig.ImagePullCredentials {
	switch {
	case with.Secret != kubeletconfig.ImagePullSecret{}:
		return &kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{with.Secret}}
	case with.Account != kubeletconfig.ImagePullServiceAccount{}:
		return &kubeletconfig.ImagePullCredentials{KubernetesServiceAccounts: []kubeletconfig.ImagePullServiceAccount{with.Account}}
	}
	return &kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
}

// repository returns the name of an image without tag and digest.
func repository(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	return named.Name(), nil
}

// record reads the record of an image; nil if there is none.
func (r *records) record(id string) (*kubeletconfig.ImagePulledRecord, error) {
	record, err := r.readRecord(r.path(pulledDir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return record, err
}

// readRecord reads the record of an image.
func (r *records) readRecord(path string) (*kubeletconfig.ImagePulledRecord, error) {
	record := &kubeletconfig.ImagePulledRecord{}
	if err := r.read(path, record); err != nil {
		return nil, err
	}
	if path != r.path(pulledDir, record.ImageRef) {
		return nil, fmt.Errorf("%s is damaged: it is about image %q", path, record.ImageRef)
	}
	return record, nil
}

// fit removes credentials from a record until readRecord can read it: the older
// half of the secrets of the repository that has most, and if none has two,
// repositories other than keep. Pods whose credentials were removed pull again.
func fit(record *kubeletconfig.ImagePulledRecord, keep string) *kubeletconfig.ImagePulledRecord {
	entry := func(name string) int {
		raw, err := json.Marshal(map[string]kubeletconfig.ImagePullCredentials{name: record.CredentialMapping[name]})
		if err != nil {
			return 0
		}
		return len(raw)
	}
	const rest = 4 << 10 // of a record without credentials
	size := rest + len(record.ImageRef)
	names := slices.Sorted(maps.Keys(record.CredentialMapping))
	for _, name := range names {
		size += entry(name)
	}
	for size > maxRecord && len(names) > 0 {
		name := slices.MaxFunc(names, func(a, b string) int {
			return cmp.Compare(len(record.CredentialMapping[a].KubernetesSecrets), len(record.CredentialMapping[b].KubernetesSecrets))
		})
		secrets := record.CredentialMapping[name].KubernetesSecrets
		if len(secrets) < 2 {
			break
		}
		size -= entry(name)
		record.CredentialMapping[name] = kubeletconfig.ImagePullCredentials{KubernetesSecrets: secrets[len(secrets)/2:]}
		size += entry(name)
	}
	for _, name := range names {
		if size > maxRecord && name != keep {
			size -= entry(name)
			delete(record.CredentialMapping, name)
		}
	}
	return record
}

// add merges credentials into the record of an image. Nil stands for unknown
// credentials.
func (r *records) add(image, id string, credentials *kubeletconfig.ImagePullCredentials) error {
	name, err := repository(image)
	if err != nil {
		return err
	}
	record, err := r.record(id)
	changed := record == nil || err != nil
	if changed { // an unreadable record permits no one
		record = &kubeletconfig.ImagePulledRecord{ImageRef: id}
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
	record.TypeMeta = typeOf("ImagePulledRecord") // it may be of an earlier version
	record.LastUpdatedTime = metav1.Now()
	return r.write(r.path(pulledDir, id), fit(record, name))
}

// merge adds credentials to known. Credentials are not stored for an image that
// all pods may use.
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
	for _, account := range more.KubernetesServiceAccounts {
		if slices.Contains(known.KubernetesServiceAccounts, account) {
			continue
		}
		changed = true
		known.KubernetesServiceAccounts = append(slices.Clone(known.KubernetesServiceAccounts), account)
		known.KubernetesServiceAccounts = known.KubernetesServiceAccounts[max(len(known.KubernetesServiceAccounts)-maxSecrets, 0):]
	}
	return known, changed
}

// same reports whether two secrets are the same object, whatever its content.
func same(a, b kubeletconfig.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// The results of checks, as metrics show them.
const (
	checkPolicyAllows  = "credentialPolicyAllowed"
	checkRecordFound   = "credentialRecordFound"
	checkAuthenticates = "mustAuthenticate"
	checkFails         = "error"
)

// Allows reports whether a pod with the given pull secrets and service accounts may use
// an image that is on the node without pulling it again. Credential providers have to
// run for the accounts, which may be nil: they are asked for if nothing else allows it.
func (r *records) Allows(image, id string, secrets []kubeletconfig.ImagePullSecret, accounts func() []kubeletconfig.ImagePullServiceAccount) (bool, error) {
	result, err := r.check(image, id, secrets, nil)
	if result == checkAuthenticates && accounts != nil {
		if of := accounts(); len(of) > 0 {
			result, err = r.check(image, id, secrets, of)
		}
	}
	if r.checks != nil {
		r.checks.WithLabelValues(result).Inc()
	}
	return result == checkPolicyAllows || result == checkRecordFound, err
}

func (r *records) check(image, id string, secrets []kubeletconfig.ImagePullSecret, accounts []kubeletconfig.ImagePullServiceAccount) (result string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.record(id)
	if err != nil {
		return checkFails, err
	}
	pulled := record != nil && !r.wasPreloaded(image, id) || r.intents[image] > 0
	if !pulled {
		intent := &kubeletconfig.ImagePullIntent{}
		switch err := r.read(r.path(pullingDir, image), intent); {
		case err == nil && intent.Image != image:
			return checkFails, fmt.Errorf("%s is damaged: it is about image %q", r.path(pullingDir, image), intent.Image)
		case err == nil:
			pulled = true
		case !errors.Is(err, fs.ErrNotExist):
			return checkFails, err
		}
	}
	name, err := repository(image)
	if err != nil {
		return checkFails, err
	}
	if !r.verifies(name, pulled) {
		return checkPolicyAllows, nil
	}
	if record == nil {
		return checkAuthenticates, nil
	}
	known := record.CredentialMapping[name]
	if known.NodePodsAccessible {
		return checkRecordFound, nil
	}
	for _, secret := range secrets {
		for _, k := range known.KubernetesSecrets {
			if secret.CredentialHash != "" && secret.CredentialHash == k.CredentialHash || same(secret, k) {
				return checkRecordFound, r.add(image, id, credentialsOf(Credential{Secret: secret}))
			}
		}
	}
	if slices.ContainsFunc(accounts, func(a kubeletconfig.ImagePullServiceAccount) bool {
		return slices.Contains(known.KubernetesServiceAccounts, a)
	}) {
		return checkRecordFound, nil
	}
	return checkAuthenticates, nil
}

// Recover turns the intents of a kubelet that was killed into records, with
// unknown credentials, of the images that exist.
func (r *records) Recover(images []*runtimeapi.Image) error {
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

// interrupted returns the names, as users wrote them, of the images with an
// intent. The keys have domain and tag, as in the runtime.
func (r *records) interrupted() (map[string]string, error) {
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

// whole returns the name of an image with its domain and tag.
func whole(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return reference.TagNameOnly(named).String()
}

// Prune removes the records of images that are not listed, unless a record was
// written at or after before. Records have times in whole seconds. A record that
// cannot be read stays and is an error: without it all pods could use the image.
func (r *records) Prune(images []*runtimeapi.Image, before time.Time) error {
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
		if _, unfinished := sharedfile.Unfinished(name); unfinished { // by a kubelet that was killed
			failed = append(failed, r.FS.Remove(path))
			continue
		}
		record, err := r.readRecord(path)
		if err != nil {
			failed = append(failed, fmt.Errorf("keep a record of a pulled image: %w", err))
			continue
		}
		if there[record.ImageRef] || !record.LastUpdatedTime.Time.Before(before) {
			continue
		}
		failed = append(failed, r.FS.Remove(path))
		if err := r.FS.Remove(filepath.Join(r.Dir, preloadedDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of the same id
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
