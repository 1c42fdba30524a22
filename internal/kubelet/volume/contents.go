package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// file is one file of a volume with contents.
type file struct {
	data []byte
	mode fs.FileMode
	uid  *int64 // its owner, root if nil
}

// contents writes a configMap, secret, downwardAPI or projected volume. All but
// config maps are in a tmpfs, so that secrets are not written to a disk.
func (v *Manager) contents(ctx context.Context, pod *v1.Pod, vol *v1.Volume, facts Facts, all *shared) (string, error) {
	w := &payload{volumes: v, ctx: ctx, pod: pod, facts: facts, allowed: &all.allowance, files: map[string]file{}, directories: map[string]bool{}}
	var err error
	switch {
	case vol.ConfigMap != nil:
		err = w.configMap(vol.ConfigMap.Name, vol.ConfigMap.Items, vol.ConfigMap.DefaultMode, vol.ConfigMap.Optional)
	case vol.Secret != nil:
		err = w.secret(vol.Secret.SecretName, vol.Secret.Items, vol.Secret.DefaultMode, vol.Secret.Optional)
	case vol.DownwardAPI != nil:
		err = w.downward(vol.DownwardAPI.Items, vol.DownwardAPI.DefaultMode)
	default:
		err = w.projected(vol.Name, vol.Projected)
	}
	nested := all.nested()[vol.Name]
	for _, path := range nested {
		if err == nil {
			err = all.allowance.parents(path+"/", w.directories)
		}
	}
	if err != nil {
		return "", err
	}
	dir := v.dir(pod.UID, plugin(vol), vol.Name)
	if vol.ConfigMap == nil {
		if err := v.inMemory(pod, facts, dir); err != nil {
			return "", err
		}
	}
	if _, err = v.write(dir, w.files, nested, func() error { return v.own(pod, dir, true) }); err != nil {
		return "", err
	}
	return dir, v.makeMountPoints(dir, nested)
}

// shared is what the volumes of one pod have in common while they are set up.
type shared struct {
	allowance allowance
	nested    func() map[string][]string // nestedMountPoints, called once
}

func newShared(pod *v1.Pod) *shared {
	return &shared{nested: sync.OnceValue(func() map[string][]string { return nestedMountPoints(pod) })}
}

// nestedMountPoints returns, for each volume, the paths in it at which containers
// of the pod mount other volumes, each relative to the nearest mount of the volume
// that it is in. The runtime could not make them in a volume that is read-only.
func nestedMountPoints(pod *v1.Pod) map[string][]string {
	nested := map[string][]string{}
	for c := range podquery.AllContainers(&pod.Spec) {
		outer := map[string]string{} // volumes, by path
		lengths := map[int]bool{}    // of these paths
		for _, m := range c.VolumeMounts {
			if m.SubPath == "" && m.SubPathExpr == "" && len(m.MountPath) <= maxPath {
				path := filepath.Clean("/" + m.MountPath)
				outer[path], lengths[len(path)] = m.Name, true
			}
		}
		for _, m := range c.VolumeMounts {
			if len(m.MountPath) > maxPath {
				continue // the runtime refuses it
			}
			path, seen := filepath.Clean("/"+m.MountPath), map[string]bool{}
			for within := path; within != "/"; {
				// A path may have thousands of elements: none is read more than once.
				within = within[:max(strings.LastIndexByte(within, '/'), 1)]
				if !lengths[len(within)] {
					continue
				}
				volume, ok := outer[within]
				if !ok || seen[volume] {
					continue
				}
				seen[volume] = true
				inner := strings.TrimPrefix(strings.TrimPrefix(path, within), "/")
				if !strings.HasPrefix(inner, "..") { // the directories of versions have such names
					nested[volume] = append(nested[volume], inner)
				}
			}
		}
	}
	return nested
}

// makeMountPoints makes the directories of nested mount points that are not there.
func (v *Manager) makeMountPoints(dir string, nested []string) error {
	for _, path := range nested {
		if _, err := v.FS.Stat(filepath.Join(dir, path)); !errors.Is(err, fs.ErrNotExist) {
			continue // a file of the volume is a mount point, too
		}
		if err := v.FS.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// inMemory mounts a tmpfs on the directory of a volume that was not written
// before.
func (v *Manager) inMemory(pod *v1.Pod, facts Facts, dir string) error {
	if _, err := v.FS.Readlink(filepath.Join(dir, dataLink)); err == nil {
		return nil
	}
	if err := v.FS.MkdirAll(dir, everyone); err != nil {
		return err
	}
	if mounted, err := v.Mounter.IsMountPoint(dir); err != nil || mounted {
		return err
	}
	size := memorySize(pod, nil, facts)
	if size == 0 || size > maxTmpfs {
		size = maxTmpfs
	}
	return v.mountMemory(dir, size)
}

// maxTmpfs is the size of the largest tmpfs with contents: while they change,
// there are two versions.
const maxTmpfs = 2 * maxContents

// mountMemory mounts a tmpfs. Its pages are not swapped if the kernel supports
// that (6.3 and later). size is in bytes; 0 means the kernel's default, half of
// the memory.
func (v *Manager) mountMemory(dir string, size int64) error {
	var options []string
	if size > 0 {
		options = append(options, fmt.Sprintf("size=%d", size))
	}
	err := v.Mounter.Mount("tmpfs", dir, "tmpfs", slices.Concat(options, []string{"noswap"}))
	if errors.Is(err, syscall.EINVAL) {
		err = v.Mounter.Mount("tmpfs", dir, "tmpfs", options)
	}
	return err
}

// payload collects the files of one volume.
type payload struct {
	volumes *Manager
	ctx     context.Context //nolint:containedctx // lives for one call of contents
	pod     *v1.Pod
	facts   Facts
	allowed *allowance
	files   map[string]file
	// directories are those that hold the files.
	directories map[string]bool
}

// put adds a file, or replaces one. The path need not be in its shortest form.
func (w *payload) put(path string, data []byte, mode fs.FileMode, owner *int64) error {
	if hasBackstep(path) {
		return fmt.Errorf("path %q must not contain '..'", path)
	}
	path = filepath.Clean(path)
	size := blocks(len(data))
	if before, replaces := w.files[path]; replaces {
		size -= blocks(len(before.data))
	}
	if err := w.allowed.add(size); err != nil {
		return err
	}
	w.files[path] = file{data: data, mode: mode, uid: owner}
	return w.allowed.parents(path, w.directories)
}

func modeOf(own, standard *int32) fs.FileMode {
	switch {
	case own != nil:
		return fs.FileMode(*own)
	case standard != nil:
		return fs.FileMode(*standard)
	}
	return 0o644
}

// object is a config map or secret. Its data is copied only for files.
type object struct {
	kind, name string
	sizes      map[string]int // of the keys
	read       func(key string) []byte
}

// show adds the selected keys of an object, or all of them.
func (w *payload) show(o object, items []v1.KeyToPath, mode *int32, optional bool) error {
	held := int64(0)
	for _, size := range o.sizes {
		held += blocks(size)
	}
	w.allowed.hold(o.kind+"/"+o.name, held)
	if len(items) == 0 {
		for k := range o.sizes {
			if err := w.put(k, o.read(k), modeOf(nil, mode), nil); err != nil {
				return err
			}
		}
		return nil
	}
	last := lastOf(items, func(item *v1.KeyToPath) string { return item.Path })
	for i, item := range items {
		if _, ok := o.sizes[item.Key]; !ok {
			if optional {
				continue
			}
			return fmt.Errorf("references non-existent %s key: %s", o.kind, item.Key)
		}
		if last[item.Path] != i {
			continue
		}
		if err := w.put(item.Path, o.read(item.Key), modeOf(item.Mode, mode), nil); err != nil {
			return err
		}
	}
	return nil
}

// lastOf returns the index of the last element of a list with each key. The later
// of two files with the same path replaces the earlier one, which need not be
// made.
func lastOf[T any](list []T, key func(*T) string) map[string]int {
	last := make(map[string]int, len(list))
	for i := range list {
		last[key(&list[i])] = i
	}
	return last
}

func (w *payload) configMap(name string, items []v1.KeyToPath, mode *int32, optional *bool) error {
	may := optional != nil && *optional
	cm, err := w.volumes.Objects.ConfigMap(w.ctx, w.pod.Namespace, name)
	if apierrors.IsNotFound(err) && may {
		return nil
	}
	if err != nil {
		return err
	}
	o := object{"config", name, make(map[string]int, len(cm.Data)+len(cm.BinaryData)), func(key string) []byte {
		if content, ok := cm.BinaryData[key]; ok {
			return content
		}
		return []byte(cm.Data[key])
	}}
	for k, content := range cm.Data {
		o.sizes[k] = len(content)
	}
	for k, content := range cm.BinaryData {
		o.sizes[k] = len(content)
	}
	return w.show(o, items, mode, may)
}

func (w *payload) secret(name string, items []v1.KeyToPath, mode *int32, optional *bool) error {
	may := optional != nil && *optional
	secret, err := w.volumes.Objects.Secret(w.ctx, w.pod.Namespace, name)
	if apierrors.IsNotFound(err) && may {
		return nil
	}
	if err != nil {
		return err
	}
	o := object{"secret", name, make(map[string]int, len(secret.Data)), func(key string) []byte { return secret.Data[key] }}
	for k, content := range secret.Data {
		o.sizes[k] = len(content)
	}
	return w.show(o, items, mode, may)
}

func (w *payload) downward(items []v1.DownwardAPIVolumeFile, mode *int32) error {
	var failed []error
	last := lastOf(items, func(item *v1.DownwardAPIVolumeFile) string { return item.Path })
	for i, item := range items {
		if last[item.Path] != i {
			continue
		}
		var text, source string
		var err error
		switch {
		case item.FieldRef != nil:
			source = "field/" + item.FieldRef.FieldPath
			text, err = spec.Field(w.pod, item.FieldRef.FieldPath, w.facts.PodIPs, w.facts.HostIPs)
		case item.ResourceFieldRef != nil:
			source = "resource/" + item.ResourceFieldRef.ContainerName + "/" + item.ResourceFieldRef.Resource
			c := podquery.Container(&w.pod.Spec, item.ResourceFieldRef.ContainerName)
			if c == nil {
				err = fmt.Errorf("container %s not found", item.ResourceFieldRef.ContainerName)
			} else {
				text, err = spec.ResourceField(w.pod, c, item.ResourceFieldRef, w.facts.Allocatable)
			}
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		w.allowed.hold(source, blocks(len(text)))
		if err := w.put(item.Path, []byte(text), modeOf(item.Mode, mode), nil); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// projected adds the files of all sources of a volume. It stops once they are too
// large, and otherwise reports all sources that fail.
func (w *payload) projected(volume string, source *v1.ProjectedVolumeSource) error {
	var failed []error
	last := lastOf(source.Sources, wholeObject)
	for i, s := range source.Sources {
		if whole := wholeObject(&s); whole != "" && last[whole] != i {
			continue
		}
		var err error
		switch {
		case s.ConfigMap != nil:
			err = w.configMap(s.ConfigMap.Name, s.ConfigMap.Items, source.DefaultMode, s.ConfigMap.Optional)
		case s.Secret != nil:
			err = w.secret(s.Secret.Name, s.Secret.Items, source.DefaultMode, s.Secret.Optional)
		case s.DownwardAPI != nil:
			err = w.downward(s.DownwardAPI.Items, source.DefaultMode)
		case s.ServiceAccountToken != nil:
			err = w.token(s.ServiceAccountToken, source.DefaultMode)
		case s.ClusterTrustBundle != nil:
			err = w.trustBundle(s.ClusterTrustBundle, source.DefaultMode)
		case s.PodCertificate != nil:
			err = w.podCertificate(volume, i, s.PodCertificate, source.DefaultMode)
		default:
			err = fmt.Errorf("a source of this projected volume is not supported on this node")
		}
		if errors.Is(err, errTooLarge) {
			return err
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// wholeObject identifies the object that a source shows all keys of, "" if it is
// none.
func wholeObject(s *v1.VolumeProjection) string {
	switch {
	case s.ConfigMap != nil && len(s.ConfigMap.Items) == 0:
		return fmt.Sprintf("config/%s/%t", s.ConfigMap.Name, s.ConfigMap.Optional != nil && *s.ConfigMap.Optional)
	case s.Secret != nil && len(s.Secret.Items) == 0:
		return fmt.Sprintf("secret/%s/%t", s.Secret.Name, s.Secret.Optional != nil && *s.Secret.Optional)
	}
	return ""
}

func (w *payload) token(source *v1.ServiceAccountTokenProjection, mode *int32) error {
	if w.volumes.Tokens == nil {
		return fmt.Errorf("service account tokens need an API server")
	}
	expiration := ptr.Deref(source.ExpirationSeconds, 3600)
	which := strconv.FormatInt(expiration, 10) + "/" + source.Audience
	if err := w.allowed.request(which, 1); err != nil {
		return err
	}
	token, err := w.volumes.Tokens.Token(w.ctx, w.pod, source.Audience, expiration)
	if err != nil {
		return err
	}
	return w.credential("token/"+which, source.Path, []byte(token), mode)
}

// podCertificate adds the files of a source with a key and its certificates.
func (w *payload) podCertificate(volume string, index int, source *v1.PodCertificateProjection, mode *int32) error {
	if w.volumes.Certificates == nil {
		return fmt.Errorf("pod certificates need an API server")
	}
	which := "certificate/" + volume + "/" + strconv.Itoa(index)
	cost := 1
	if strings.HasPrefix(source.KeyType, "RSA") {
		cost = costOfRSA
	}
	if err := w.allowed.request(which, cost); err != nil {
		return err
	}
	key, chain, err := w.volumes.Certificates.Certificate(w.ctx, w.pod, volume, index, source)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path string
		data []byte
	}{{source.CredentialBundlePath, slices.Concat(key, chain)}, {source.KeyPath, key}, {source.CertificateChainPath, chain}} {
		if f.path == "" {
			continue
		}
		if err := w.credential(which+"/"+f.path, f.path, f.data, mode); err != nil {
			return err
		}
	}
	return nil
}

// credential adds a file that belongs to the pod's user, if all containers have
// the same.
func (w *payload) credential(source, path string, data []byte, mode *int32) error {
	perm, user := modeOf(nil, mode), onlyUser(w.pod)
	if sc := w.pod.Spec.SecurityContext; user != nil || sc != nil && sc.FSGroup != nil {
		perm = 0o600
	}
	w.allowed.hold(source, blocks(len(data)))
	return w.put(path, data, perm, user)
}

// onlyUser returns the user that all containers of the pod set, nil if they
// differ or one sets none.
func onlyUser(pod *v1.Pod) *int64 {
	var only *int64
	for c := range podquery.Containers(&pod.Spec) {
		user := spec.User(pod, c)
		if user == nil || only != nil && *only != *user {
			return nil
		}
		only = user
	}
	return only
}
