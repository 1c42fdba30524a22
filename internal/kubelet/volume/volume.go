// Package volume sets up and tears down the volumes of pods on the node. It
// corresponds to upstream's volume manager and the plugins that it calls.
//
//	ROOT/pods/UID/
//	  volumes/kubernetes.io~empty-dir/NAME       a directory, or a tmpfs
//	  volumes/kubernetes.io~local-volume/PV      a local volume that has mount options
//	  volumes/kubernetes.io~configmap/NAME/      written atomically:
//	    ..2026_11_21_04_00_00.123/key            the payload
//	    ..data -> ..2026_11_21_04_00_00.123      swapped by rename
//	    key -> ..data/key                        what containers open
//	  plugins/kubernetes.io~empty-dir/NAME/ready the volume was set up once
//	  volume-subpaths/NAME/CONTAINER/INDEX       bind mounts of subPaths
//	  containers/NAME/                           termination messages
//	  etc-hosts
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
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
	"github.com/coracle-io/coracle/internal/podquery"
)

// Claims looks up what persistent volume claims refer to.
type Claims interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
}

// Tokens requests service account tokens.
type Tokens interface {
	// Token returns a token for the service account of the pod. It renews the
	// token well before it expires.
	Token(ctx context.Context, pod *v1.Pod, audience string, expirationSeconds int64) (string, error)
	// Forget drops the tokens of a pod.
	Forget(uid types.UID)
}

// Manager sets up and tears down the volumes of pods. Its methods may be
// called from any goroutine, for one pod by one goroutine at a time.
type Manager struct {
	Root    string               // of the kubelet
	Paths   hostpath.Directories // how pods may name directories of the kubelet
	FS      files.FS
	Mounter files.Mounter
	Objects spec.Objects
	Claims  Claims
	Tokens  Tokens
	Bundles TrustBundles
	// Certificates may be nil, as Tokens may be: without an API server.
	Certificates PodCertificates
	CSI          *csi.Volumes
	// Node returns the newest known Node object, nil before the first. Without Node,
	// volumes of other nodes are not refused.
	Node func() *v1.Node
	// Recorder gets events about volumes that pods share. It may be nil.
	Recorder record.EventRecorder
	// Operations measures how volumes are mounted. It may be nil.
	Operations *Operations
	// EmptyDirModes gives emptyDir volumes the mode that their source has: the gate
	// EmptyDirVolumeMode.
	EmptyDirModes bool

	devices heldDevices
	giving  csi.Locks // by the path of a persistent volume of this node that a pod is about to get
}

// TrustBundles looks up cluster trust bundles.
type TrustBundles interface {
	TrustBundles(ctx context.Context) ([]*certificatesv1.ClusterTrustBundle, error)
}

// Facts are the properties of pod and node that volumes can show.
type Facts struct {
	PodIPs, HostIPs []string
	Allocatable     v1.ResourceList
}

// PodDir returns the directory of everything that the node keeps for a pod.
func (v *Manager) PodDir(uid types.UID) string { return filepath.Join(v.Root, "pods", string(uid)) }

func (v *Manager) dir(uid types.UID, plugin, name string) string {
	return filepath.Join(v.PodDir(uid), "volumes", "kubernetes.io~"+plugin, name)
}

// maxRefresh is how long volumes that were set up before are updated before
// containers start with their old content.
const maxRefresh = 5 * time.Second

// maxPath is the length of a path, in bytes: PATH_MAX without the zero byte.
const maxPath = 4095

// SetUp sets up the volumes that containers of the pod use, or updates those with
// contents, and returns their paths by name. Image volumes have none. A volume that
// cannot be updated stays as it is, and outdated has the reason. An error is about a
// volume that was never set up. SetUp is idempotent.
func (v *Manager) SetUp(ctx context.Context, pod *v1.Pod, facts Facts) (paths map[string]string, outdated []error, err error) {
	refresh, cancel := context.WithTimeout(ctx, maxRefresh)
	defer cancel()
	if err := checkLists(pod); err != nil {
		return nil, nil, err
	}
	paths = make(map[string]string, len(pod.Spec.Volumes))
	all, used := newShared(pod), usedVolumes(pod)
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if !used[vol.Name] {
			continue
		}
		within, before := ctx, v.mounted(pod, vol)
		if before != "" {
			within = refresh
		}
		began := time.Now()
		path, err := v.setUp(within, pod, vol, facts, all)
		if before == "" && vol.Image == nil {
			v.Operations.observe(pluginName(vol, v.resolved(pod.UID, vol), v.CSI), mounting, began, err)
		}
		if err != nil {
			if named := new(csi.Failure); !errors.As(err, &named) {
				err = fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", vol.Name, err)
			}
			if before == "" {
				return nil, nil, err
			}
			path, outdated = before, append(outdated, err)
		}
		paths[vol.Name] = path
	}
	return paths, outdated, nil
}

// usedVolumes returns the names of the volumes that containers of a pod, also
// ephemeral ones, mount or have as devices. A pod does not wait for its others.
func usedVolumes(pod *v1.Pod) map[string]bool {
	used := make(map[string]bool, len(pod.Spec.Volumes))
	for c := range podquery.AllContainers(&pod.Spec) {
		for _, m := range c.VolumeMounts {
			used[m.Name] = true
		}
		for _, d := range c.VolumeDevices {
			used[d.Name] = true
		}
	}
	return used
}

func (v *Manager) setUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume, facts Facts, all *shared) (string, error) {
	switch {
	case vol.EmptyDir != nil:
		return v.emptyDir(pod, vol, facts)
	case vol.HostPath != nil:
		return v.host(pod, vol)
	case vol.ConfigMap != nil, vol.Secret != nil, vol.DownwardAPI != nil, vol.Projected != nil:
		return v.contents(ctx, pod, vol, facts, all)
	case vol.PersistentVolumeClaim != nil, vol.Ephemeral != nil:
		return v.claim(ctx, pod, vol)
	case vol.Image != nil:
		return "", nil
	case vol.NFS != nil:
		return "", fmt.Errorf("volumes of type nfs are not supported on this node")
	case vol.CSI != nil:
		return v.CSI.SetUp(ctx, pod, csi.Source{Volume: vol})
	}
	return "", fmt.Errorf("no volume plugin matched")
}

// TearDown unmounts and removes everything kept for the pod. The volumes of CSI
// drivers are unmounted by the drivers, after all that is mounted from them.
func (v *Manager) TearDown(ctx context.Context, uid types.UID) error {
	dir := v.PodDir(uid)
	mounts, err := v.Mounter.Below(dir)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if v.CSI.Owns(uid, m) || isBelowSubPath(dir, m, mounts) {
			continue
		}
		began := time.Now()
		err := v.Mounter.Unmount(m)
		if name := pluginAt(dir, m); name != "" {
			v.Operations.observe(name, unmounting, began, err)
		}
		if err != nil {
			return err
		}
	}
	// A device that is open cannot be detached.
	if err := v.devices.release(ctx, uid); err != nil {
		return err
	}
	if err := v.CSI.TearDown(ctx, uid); err != nil {
		return err
	}
	if v.Tokens != nil {
		v.Tokens.Forget(uid)
	}
	if v.Certificates != nil {
		v.Certificates.Forget(uid)
	}
	if err := v.removeMountPoints(dir); err != nil {
		return err
	}
	return v.FS.RemoveAll(dir)
}

// isBelowSubPath reports whether a mount point of a pod is below a path in a volume that
// is mounted for a container, as one of all mount points is. It may have been propagated
// there from the machine, where it must stay: the unmounting of the path ends it.
func isBelowSubPath(podDir, point string, all []string) bool {
	rest, _ := files.Beneath(podDir, point)
	parts := strings.SplitN(rest, "/", 5) // volume-subpaths/NAME/CONTAINER/INDEX/...
	return len(parts) == 5 && parts[0] == "volume-subpaths" && slices.Contains(all, filepath.Join(podDir, filepath.Join(parts[:4]...)))
}

// removeMountPoints removes the directories and files of a pod where volumes, and paths
// in them, were mounted. A directory that is not empty now stays: what is in it may be
// data that was written for a volume while that was not mounted. Volumes that end with
// the pod are removed all the same, as the node needs the room.
func (v *Manager) removeMountPoints(podDir string) error {
	volumes, err := below(v.FS, filepath.Join(podDir, "volumes"), 2)
	if err != nil {
		return err
	}
	points, err := below(v.FS, filepath.Join(podDir, "volume-subpaths"), 3)
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range volumes {
		if isScratch(filepath.Base(filepath.Dir(path))) {
			failed = append(failed, v.FS.RemoveAll(path))
		} else {
			points = append(points, path)
		}
	}
	for _, path := range points {
		if err := v.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("nothing is mounted there any more, but %w", err))
		}
	}
	return errors.Join(failed...)
}

// isScratch reports whether the volumes in a folder of a pod are nothing but directories
// of the pod, which end with it.
func isScratch(folder string) bool {
	name, found := strings.CutPrefix(folder, "kubernetes.io~")
	return found && slices.Contains([]string{"empty-dir", "git-repo", "configmap", "secret", "downward-api", "projected"}, name)
}

// below returns the paths that are so many levels below a directory, which may be
// missing.
func below(fsys files.FS, dir string, levels int) ([]string, error) {
	names, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		path := filepath.Join(dir, name)
		if levels == 1 {
			out = append(out, path)
			continue
		}
		deeper, err := below(fsys, path, levels-1)
		if err != nil {
			return nil, err
		}
		out = append(out, deeper...)
	}
	return out, nil
}

// Known returns the pods that have directories on the node. It skips
// directories whose names are not UIDs of pods, because directories of unknown
// pods are removed.
func (v *Manager) Known() ([]types.UID, error) {
	names, err := v.FS.ReadDir(filepath.Join(v.Root, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is made for the first pod
		return nil, err
	}
	out := make([]types.UID, 0, len(names))
	for _, n := range names {
		if files.IsPodUID(n) {
			out = append(out, types.UID(n))
		}
	}
	return out, nil
}

// Mounts returns the runtime's mounts for one container of the pod. paths is
// what SetUp returned, env the container's environment for subPathExpr.
func (v *Manager) Mounts(pod *v1.Pod, c *v1.Container, paths map[string]string, env []spec.Variable) ([]*runtimeapi.Mount, error) {
	lookup := spec.Lookup(env)
	var out, logs []*runtimeapi.Mount
	for i, m := range c.VolumeMounts {
		vol := volumeOf(pod, m.Name)
		if vol == nil {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		var pv *v1.PersistentVolume
		if claim, _ := podquery.ClaimName(pod, vol); claim != "" {
			pv = v.resolved(pod.UID, vol)
		}
		if isBlock(pv) {
			return nil, fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			var missing []string
			var err error
			if sub, missing, err = spec.Expand(m.SubPathExpr, lookup, maxPath); err != nil {
				return nil, fmt.Errorf("failed to expand subPathExpr %q of volume mount %q: the path has more than %d bytes", m.SubPathExpr, m.Name, maxPath)
			} else if len(missing) > 0 {
				return nil, fmt.Errorf("failed to expand subPathExpr %q of volume mount %q: missing value for %q", m.SubPathExpr, m.Name, missing[0])
			}
		}
		if filepath.IsAbs(sub) {
			return nil, fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
		}
		if hasBackstep(sub) {
			return nil, fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
		}
		mount := &runtimeapi.Mount{ContainerPath: m.MountPath, Readonly: m.ReadOnly || readOnly(vol) || isReadOnly(pv), Propagation: propagation(m.MountPropagation)}
		if !filepath.IsAbs(mount.ContainerPath) {
			mount.ContainerPath = "/" + mount.ContainerPath
		}
		if vol.Image != nil {
			mount.Image, mount.ImageSubPath, mount.Readonly = &runtimeapi.ImageSpec{Image: vol.Image.Reference}, sub, true
			out = append(out, mount)
			continue
		}
		host := paths[m.Name]
		if host == "" {
			return nil, fmt.Errorf("volume %q of container %q is not mounted", m.Name, c.Name)
		}
		if vol.HostPath != nil {
			host, sub = v.Paths.Part(host, sub)
		}
		if sub != "" {
			target := filepath.Join(v.PodDir(pod.UID), "volume-subpaths", m.Name, c.Name, fmt.Sprint(i))
			if err := v.remount(host, sub, target); err != nil {
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", m.Name, c.Name, err)
			}
			host = target
		}
		mount.HostPath = host
		out = append(out, mount)
		if (vol.HostPath != nil || isOfNode(pv)) && filepath.Clean(host) == hostpath.Logs {
			logs = append(logs, logMounts(v.FS, v.Paths, v.Root, c, mount)...)
		}
	}
	return append(out, logs...), nil
}

// remount replaces the bind mount of an earlier instance of the container. The
// source may have been a directory at the first mount and be a file now, so
// remount creates the mount point again.
func (v *Manager) remount(root, sub, target string) error {
	if err := v.Mounter.Unmount(target); err != nil {
		return err
	}
	if err := v.FS.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return v.Mounter.BindBeneath(root, sub, target, false)
}

func hasBackstep(path string) bool { return slices.Contains(strings.Split(path, "/"), "..") }

// readOnly reports whether the volume is read-only whatever its mounts say.
func readOnly(vol *v1.Volume) bool {
	return vol.ConfigMap != nil || vol.Secret != nil || vol.DownwardAPI != nil || vol.Projected != nil ||
		vol.PersistentVolumeClaim != nil && vol.PersistentVolumeClaim.ReadOnly ||
		vol.CSI != nil && vol.CSI.ReadOnly != nil && *vol.CSI.ReadOnly
}

func volumeOf(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

func propagation(mode *v1.MountPropagationMode) runtimeapi.MountPropagation {
	if mode != nil {
		switch *mode {
		case v1.MountPropagationHostToContainer:
			return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case v1.MountPropagationBidirectional:
			return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}
