package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/beneath"
	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/host/tree"
	"github.com/coracle-io/coracle/internal/kubelet/hostpath"
	"github.com/coracle-io/coracle/internal/mountinfo"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// manifest lists what Coracle makes in a data directory, in the order of
// removal. A pattern that ends with a slash is a directory that is Coracle's
// with all of its content. Any other pattern is a file, finished or not.
// Directories above patterns are removed when they are empty.
func manifest() []string {
	all := append([]string{"coracle.log", "coracle.log.[1-9]", configManifestsName + "/"}, ofNode("")...)
	for _, dir := range furtherNodes() {
		all = append(all, ofNode(dir+"/")...)
	}
	all = append(all, "etcd/member/", "etcd/etcd.sock", "etcd/*.invalid")
	for _, name := range pki.Files() {
		all = append(all, "pki/"+name)
	}
	return append(all, settingsName)
}

// ofNode returns the part of the manifest that a node makes below dir, which is ""
// for the first node.
func ofNode(dir string) []string {
	var all []string
	for _, name := range []string{"kubelet/", "containerd/", "logs/", "node/", "local-volumes/", "cni/conf/", "cni/leases/"} {
		all = append(all, dir+name)
	}
	return all
}

// furtherNodes returns the directories that further nodes may have.
func furtherNodes() []string {
	var dirs []string
	for number := 2; number <= clusterdefaults.MaxNodes; number++ {
		dirs = append(dirs, furtherNode(number))
	}
	return dirs
}

// furtherNode returns the directory of a further node, relative to the data directory.
func furtherNode(number int) string { return "nodes/" + strconv.Itoa(number) }

// RemoveData removes from a data directory what Coracle made there, except the
// lock, which the caller must hold. It returns what is left in the directory, such as
// keys that the user had put there.
func RemoveData(dir string) (left []string, err error) { return removeManifest(dir, foundKeys(dir)) }

// foundKeys returns the keys in a data directory that were there before the cluster.
// If its settings cannot be read, they may be all that a user can bring.
func foundKeys(dir string) []string {
	s, err := ReadSettings(dir)
	if err == nil || errors.Is(err, ErrNoSettings) {
		return s.Found
	}
	return sharedKeys()
}

// sharedKeys returns the keys that a user may bring from another server, relative to
// the data directory.
func sharedKeys() (keys []string) {
	for _, name := range pki.Shared() {
		keys = append(keys, "pki/"+name)
	}
	return keys
}

// Vacate removes the lock of a data directory, which the caller must hold, so
// that others may use the directory. It also removes the directories in made
// that are empty, given the outermost first.
func Vacate(dir string, made []string) error {
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, made := range slices.Backward(made) {
		_ = os.Remove(made) // fails if something is in it or mounted there
	}
	return nil
}

// removeManifest removes from a data directory what is in the manifest and not
// in before, and returns what is left.
func removeManifest(dir string, before []string) (left []string, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if mounts, err := mountsBelow(dir); err != nil || len(mounts) > 0 {
		return nil, errors.Join(err, mountedError(mounts))
	}
	if err := removePatterns(dir, manifest(), before); err != nil {
		return nil, err
	}
	parents := []string{"cni", "etcd", "pki", manifestsName}
	for _, node := range furtherNodes() {
		parents = append(parents, node+"/cni", node)
	}
	for _, sub := range append(parents, "nodes") {
		if !slices.Contains(before, sub) {
			_ = unix.Rmdir(filepath.Join(dir, sub)) // only when empty, and no link
		}
	}
	return remaining(dir)
}

// removePatterns removes from a data directory what matches the patterns of a manifest
// and is not in before.
func removePatterns(dir string, patterns, before []string) error {
	for _, pattern := range patterns {
		wanted := strings.TrimSuffix(pattern, "/")
		names, err := matches(dir, wanted)
		if err != nil {
			return err
		}
		for _, name := range names {
			if slices.Contains(before, name) {
				continue
			}
			if err := removeOwn(filepath.Join(dir, name), wanted != pattern); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveNode removes the mounts and files of a further node, numbered from 2, whose
// processes and containers have ended: in the data directory, and in that of the
// cluster's sockets. What users have put there stays; RemoveNode returns what is left
// in the node's directory.
func RemoveNode(dataDir, runDir string, number int) (left []string, err error) {
	at := furtherNode(number)
	node, sockets := filepath.Join(dataDir, at), filepath.Join(runDir, strconv.Itoa(number))
	kubelet := filepath.Join(node, "kubelet")
	err = errors.Join(mountinfo.DetachBelow(append(realPlaces(mountPlaces(kubelet, node)), sockets)...), unmountRoots(realPlaces([]string{kubelet})))
	if err != nil {
		return nil, err
	}
	if err := tree.Remove(sockets); err != nil {
		return nil, err
	}
	if mounts, err := mountsBelow(node); err != nil || len(mounts) > 0 {
		return nil, errors.Join(err, mountedError(mounts))
	}
	if err := removePatterns(dataDir, ofNode(at+"/"), nil); err != nil {
		return nil, err
	}
	for _, sub := range []string{at + "/cni", at, "nodes"} {
		_ = unix.Rmdir(filepath.Join(dataDir, sub)) // only when empty, and no link
	}
	left, err = remaining(node)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return left, err
}

// VolumesOfNode returns the names of the volumes in the data directory of a further
// node that hold data of claims.
func VolumesOfNode(dataDir string, number int) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dataDir, furtherNode(number), "local-volumes"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// matches returns the names in a data directory that match a pattern, relative
// to it. It does not follow links.
func matches(dir, pattern string) (names []string, err error) {
	sub, pattern := filepath.Split(pattern)
	at := filepath.Join(dir, sub)
	if info, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if of, ok := sharedfile.Unfinished(name); ok {
			name = of
		}
		if ok, err := filepath.Match(pattern, name); err != nil {
			return nil, err
		} else if ok {
			names = append(names, filepath.Join(sub, e.Name()))
		}
	}
	return names, nil
}

// removeOwn removes a file or, if whole is set, a directory with everything in
// it. It leaves what is of another type than Coracle makes.
func removeOwn(path string, whole bool) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if whole && info.IsDir() {
		return tree.Remove(path)
	}
	if whole || info.IsDir() {
		return nil
	}
	return os.Remove(path)
}

// remaining lists what is in a data directory besides the lock.
func remaining(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, e := range entries {
		if e.Name() != lockName {
			left = append(left, e.Name())
		}
	}
	return left, nil
}

// RemoveRun removes the directory of a cluster's sockets, and the directories
// of all clusters' sockets above it if they are empty.
func RemoveRun(dir string) error {
	if err := tree.Remove(dir); err != nil {
		return err
	}
	for _, name := range []string{"run", "coracle"} {
		if parent := filepath.Dir(dir); filepath.Base(parent) == name {
			_ = os.Remove(parent) // only when empty
			dir = parent
		}
	}
	return nil
}

// RemoveLogDirectories removes the directories that the kubelets of a cluster with this
// data directory have made in the machine's directory of logs (package hostpath), unless
// other kubelets use them. Their containers must have ended, and the settings be there.
func RemoveLogDirectories(dataDir string) error {
	_, roots := mountDirectories(dataDir)
	return hostpath.RemoveMarks(roots...)
}

// foreignMounts returns the mount points in a cluster's data directory that
// Coracle did not make, such as a disk for the containers, and those in root directories
// of kubelets elsewhere that are mounted on themselves, and cannot be unmounted before.
func foreignMounts(dataDir string) ([]string, error) {
	own, roots := mountDirectories(dataDir)
	shared, err := onThemselves(roots)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsBelow(append([]string{dataDir}, shared...)...)
	return slices.DeleteFunc(mounts, func(m string) bool { return below(m, own) || slices.Contains(shared, m) }), err
}

// mountDirectories returns the directories below which the kubelet mounts
// volumes and containerd mounts containers: in the data directory, behind links
// there, or where the kubelet's root-dir is. It also returns the root directories of
// kubelets, which these may have mounted on themselves.
func mountDirectories(dataDir string) (places, roots []string) {
	roots = kubeletRoots(dataDir)
	for i, root := range roots {
		node := dataDir
		if i > 0 {
			node = filepath.Join(dataDir, furtherNode(i+1))
		}
		places = append(places, mountPlaces(root, node)...)
	}
	return realPlaces(places), realPlaces(roots)
}

// kubeletRoots returns the root directories that the kubelets of a cluster with this data
// directory may have, that of the first node first, then those of further nodes by their
// numbers.
func kubeletRoots(dataDir string) []string {
	first := filepath.Join(dataDir, "kubelet")
	if s, err := ReadSettings(dataDir); err == nil {
		first = cmp.Or(flagvalue.Last(s.Options.KubeletArgs, "root-dir"), first)
	}
	roots := []string{first}
	for _, dir := range furtherNodes() {
		roots = append(roots, filepath.Join(dataDir, dir, "kubelet"))
	}
	return roots
}

// SharedRoots returns the root directories of the kubelets of a cluster with this data
// directory, and of each, whether what is mounted below reaches the pods that have it as a
// hostPath volume. It leaves out those whose kubelet may not have started: what is missing,
// and what is not shared while nothing is mounted below.
func SharedRoots(dataDir string) (map[string]bool, error) {
	out := make(map[string]bool)
	for _, root := range kubeletRoots(dataDir) {
		real, err := filepath.EvalSymlinks(root)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		shared, err := mountinfo.Shared(real)
		mounts, mountsErr := mountsBelow(real)
		if err := errors.Join(err, mountsErr); err != nil {
			return nil, err
		}
		if shared || len(mounts) > 0 {
			out[root] = shared
		}
	}
	return out, nil
}

// onThemselves returns those directories that are mounted on themselves, and on which
// nothing else is mounted.
func onThemselves(dirs []string) (own []string, err error) {
	var errs []error
	for _, dir := range dirs {
		is, err := mountinfo.IsOnItself(dir)
		if errs = append(errs, err); is {
			own = append(own, dir)
		}
	}
	return own, errors.Join(errs...)
}

// realPlaces returns directories, and where those are that links lead to.
func realPlaces(places []string) []string {
	for _, place := range places {
		if real, err := filepath.EvalSymlinks(place); err == nil && real != place {
			places = append(places, real)
		}
	}
	return places
}

// mountPlaces returns these directories of a node.
func mountPlaces(kubelet, dir string) []string {
	return []string{filepath.Join(kubelet, "pods"), filepath.Join(kubelet, "plugins"), filepath.Join(dir, "containerd", "root")}
}

// below reports whether a path is below one of several directories.
func below(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		rest, in := beneath.Rel(dir, path)
		return in && rest != ""
	})
}

func mountedError(points []string) error {
	if len(points) == 0 {
		return nil
	}
	deepest := slices.Clone(points[max(0, len(points)-maxUnmount):]) // one below another is unmounted before that
	slices.Reverse(deepest)
	return fmt.Errorf("something is mounted at %s, which may hold what is not the cluster's: unmount it first (umount %s)", firstFew(points), strings.Join(deepest, " "))
}

// maxUnmount bounds the mount points that a user is asked to unmount at a time.
const maxUnmount = 3

// foreignError returns an error that names foreign mounts of a cluster, if there are any.
func foreignError(dataDir string, foreign []string) error {
	err := mountedError(foreign)
	if err == nil {
		return nil
	}
	if _, roots := mountDirectories(dataDir); !slices.ContainsFunc(foreign, func(m string) bool { return below(m, roots) }) {
		return err
	}
	return fmt.Errorf("%w; a driver in a pod may have mounted it in the kubelet's directory, and may do so again: delete its pods before", err)
}

// RefuseForeignMounts returns an error that names the foreign mounts, if there
// are any.
func RefuseForeignMounts(dataDir string) error {
	foreign, err := foreignMounts(dataDir)
	return errors.Join(err, foreignError(dataDir, foreign))
}

// RefuseForeignMountsOf is RefuseForeignMounts for what is mounted in the directory of
// a further node.
func RefuseForeignMountsOf(dataDir string, number int) error {
	foreign, err := foreignMounts(dataDir)
	node := filepath.Join(dataDir, furtherNode(number))
	return errors.Join(err, foreignError(dataDir, mountinfo.Below(foreign, node)))
}

// UnmountCluster unmounts what Coracle mounted for a cluster with that data
// directory, and everything below its run directory.
func UnmountCluster(dataDir, runDir string) error {
	places, roots := mountDirectories(dataDir)
	return errors.Join(mountinfo.DetachBelow(append(places, runDir)...), unmountRoots(roots))
}

// unmountRoots unmounts the root directories of kubelets from themselves, unless
// something is still mounted below.
func unmountRoots(roots []string) error {
	var errs []error
	for _, root := range roots {
		errs = append(errs, mountinfo.DetachFromItself(root))
	}
	return errors.Join(errs...)
}

// mountsBelow returns the mount points below directories.
func mountsBelow(dirs ...string) ([]string, error) {
	points, err := mountinfo.Points()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(points, func(m string) bool { return !below(m, dirs) }), nil
}
