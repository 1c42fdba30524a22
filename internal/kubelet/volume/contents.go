package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/kubelet/files"
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
func (v *Manager) contents(ctx context.Context, pod *v1.Pod, vol *v1.Volume, facts Facts) (string, error) {
	w := &payload{volumes: v, ctx: ctx, pod: pod, facts: facts, files: map[string]file{}}
	var err error
	switch {
	case vol.ConfigMap != nil:
		err = w.configMap(vol.ConfigMap.Name, vol.ConfigMap.Items, vol.ConfigMap.DefaultMode, vol.ConfigMap.Optional)
	case vol.Secret != nil:
		err = w.secret(vol.Secret.SecretName, vol.Secret.Items, vol.Secret.DefaultMode, vol.Secret.Optional)
	case vol.DownwardAPI != nil:
		err = w.downward(vol.DownwardAPI.Items, vol.DownwardAPI.DefaultMode)
	default:
		err = w.projected(vol.Projected)
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
	nested := nestedMountPoints(pod, vol.Name)
	if _, err = v.write(dir, w.files, nested, func() error { return v.own(pod, dir, true) }); err != nil {
		return "", err
	}
	return dir, v.makeMountPoints(dir, nested)
}

// nestedMountPoints returns the paths in a volume at which containers of the pod
// mount other volumes. The runtime could not make them, because the volume is
// read-only.
func nestedMountPoints(pod *v1.Pod, volume string) []string {
	var nested []string
	for c := range podquery.AllContainers(&pod.Spec) {
		for _, outer := range c.VolumeMounts {
			if outer.Name != volume || outer.SubPath != "" || outer.SubPathExpr != "" {
				continue
			}
			for _, inner := range c.VolumeMounts {
				path, ok := files.Beneath(filepath.Clean(outer.MountPath), filepath.Clean(inner.MountPath))
				if ok && !strings.HasPrefix(path, "..") { // the directories of versions have such names
					nested = append(nested, path)
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
	if mounted, err := v.isMountPoint(dir); err != nil || mounted {
		return err
	}
	return v.mountMemory(dir, memorySize(pod, nil, facts))
}

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
	files   map[string]file
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

// keys adds the selected keys of an object, or all of them.
func (w *payload) keys(kind string, data map[string][]byte, items []v1.KeyToPath, mode *int32, optional bool) error {
	if len(items) == 0 {
		for k, content := range data {
			w.files[k] = file{data: content, mode: modeOf(nil, mode)}
		}
		return nil
	}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			return fmt.Errorf("references non-existent %s key: %s", kind, item.Key)
		}
		if hasBackstep(item.Path) {
			return fmt.Errorf("path %q must not contain '..'", item.Path)
		}
		w.files[item.Path] = file{data: content, mode: modeOf(item.Mode, mode)}
	}
	return nil
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
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, content := range cm.Data {
		data[k] = []byte(content)
	}
	for k, content := range cm.BinaryData {
		data[k] = content
	}
	return w.keys("config", data, items, mode, may)
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
	return w.keys("secret", secret.Data, items, mode, may)
}

func (w *payload) downward(items []v1.DownwardAPIVolumeFile, mode *int32) error {
	var failed []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = spec.Field(w.pod, item.FieldRef.FieldPath, w.facts.PodIPs, w.facts.HostIPs)
		case item.ResourceFieldRef != nil:
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
		w.files[item.Path] = file{data: []byte(text), mode: modeOf(item.Mode, mode)}
	}
	return errors.Join(failed...)
}

func (w *payload) projected(source *v1.ProjectedVolumeSource) error {
	var failed []error
	for _, s := range source.Sources {
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
			err = fmt.Errorf("pod certificates are not supported on this node")
		default:
			err = fmt.Errorf("a source of this projected volume is not supported on this node")
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (w *payload) token(source *v1.ServiceAccountTokenProjection, mode *int32) error {
	if w.volumes.Tokens == nil {
		return fmt.Errorf("service account tokens need an API server")
	}
	expiration := int64(3600)
	if source.ExpirationSeconds != nil {
		expiration = *source.ExpirationSeconds
	}
	token, err := w.volumes.Tokens.Token(w.ctx, w.pod, source.Audience, expiration)
	if err != nil {
		return err
	}
	w.credential(source.Path, []byte(token), mode)
	return nil
}

// credential adds a file that belongs to the pod's user, if all containers have
// the same.
func (w *payload) credential(path string, data []byte, mode *int32) {
	perm, user := modeOf(nil, mode), onlyUser(w.pod)
	if sc := w.pod.Spec.SecurityContext; user != nil || sc != nil && sc.FSGroup != nil {
		perm = 0o600
	}
	w.files[path] = file{data: data, mode: perm, uid: user}
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
