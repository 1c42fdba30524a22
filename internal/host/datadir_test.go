package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/host/tree"
)

// files makes files, and directories for names that end with a slash.
func files(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		content := []byte(name)
		if name == lockName { // of a start that was killed before it said who it is
			content = nil
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// listed lists everything in a directory.
func listed(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if relative, _ := filepath.Rel(dir, path); relative != "." {
			all = append(all, relative)
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// clusterIn puts what a cluster has into a directory.
func clusterIn(t *testing.T, dir, name string) {
	t.Helper()
	files(t, dir, "coracle.log", "coracle.log.1", "etcd/member/snap/db", "etcd/member/wal/0.wal", "pki/ca.crt", "pki/ca.key", "pki/.lock", "pki/kubelet-n.crt", "pki/etcd-peer-n.key", "pki/.sa.key.coracle-12", ".settings.json.coracle-3",
		"kubelet/pods/uid/volumes/x", "containerd/root/a/b", "containerd/config.toml", "logs/pods/p/0.log", "cni/conf/10.conflist", "cni/leases/l")
	s := keptSettings(dir)
	own := DefaultsOf(name, s.Slot)
	s.Options.Name, s.Options.Node.NFTable, s.Options.Node.CgroupRoot = name, own.NFTable, own.Cgroup
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
}

func TestClaimRefusesWhatIsNotItsOwn(t *testing.T) {
	for what, prepare := range map[string]func(t *testing.T, dir string){
		"not empty and holds no cluster (a, b, c and 1 more)": func(t *testing.T, dir string) { files(t, dir, "a", "b", "c", "d") },
		"holds the data of cluster b":                         func(t *testing.T, dir string) { clusterIn(t, dir, "b") },
		"not a directory": func(t *testing.T, dir string) {
			files(t, filepath.Dir(dir), "data")
		},
		"cluster a runs or is being started by process": func(t *testing.T, dir string) {
			clusterIn(t, dir, "a")
			l, err := LockData(t.Context(), dir, "a", 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Release() })
		},
		"the settings have version 9": func(t *testing.T, dir string) {
			files(t, dir, "x/")
			if err := os.WriteFile(SettingsFile(dir), []byte(`{"version":9}`), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "data")
		prepare(t, dir)
		before := listed(t, parent)
		c, err := ClaimDir(t.Context(), dir, "a", false)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %+v, %v", what, c, err)
		}
		if diff := cmp.Diff(before, listed(t, parent)); diff != "" {
			t.Errorf("%q: it was touched:\n%s", what, diff)
		}
	}
}

// Permissions of other users on the directory are removed.
func TestClaimClosesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c, err := ClaimDir(t.Context(), dir, "a", false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Lock.Release() }()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", info.Mode(), err)
	}
	if os.Geteuid() != 0 {
		return
	}
	theirs := t.TempDir()
	if err := os.Chown(theirs, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if _, err := ClaimDir(t.Context(), theirs, "a", false); err == nil || !strings.Contains(err.Error(), "belongs to user 1234") {
		t.Errorf("a directory of another user: %v", err)
	}
}

// A first start that is killed while it writes the settings leaves files. They
// do not prevent another start. They are removed with that start's files, or by
// RemoveStart.
func TestAStartThatWasKilled(t *testing.T) {
	const unfinished = ".settings.json.coracle-1"
	dir := filepath.Join(t.TempDir(), "data")
	files(t, dir, lockName, unfinished)
	c, err := ClaimDir(t.Context(), dir, "a", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := RemoveStart(t.Context(), dir, true); err == nil {
		t.Error("removed while another start has the directory")
	}
	if err := errors.Join(c.Abandon(), c.Vacate(), c.Lock.Release()); err != nil {
		t.Error(err)
	}
	if left := listed(t, dir); len(left) > 0 {
		t.Errorf("after a start that fails there are %v", left)
	}
	for _, tt := range []struct {
		what   string
		itself bool
		there  []string
		left   []string
	}{
		{"the default directory", true, []string{lockName, unfinished}, nil},
		{"one that was given", false, []string{lockName, unfinished}, []string{"data"}},
		{"one with keys", true, []string{lockName, "pki/ca.key"}, []string{"data", "data/pki", "data/pki/ca.key"}},
		{"somebody else's", true, []string{"notes"}, []string{"data", "data/notes"}},
		{"a cluster's", true, []string{lockName, unfinished, settingsName}, []string{"data", "data/" + unfinished, "data/" + lockName, "data/" + settingsName}},
		{"what others call a lock", true, []string{"lock/held"}, []string{"data", "data/lock", "data/lock/held"}},
		{"none", true, nil, nil},
	} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "data")
		files(t, dir, tt.there...)
		if err := RemoveStart(t.Context(), dir, tt.itself); err != nil {
			t.Errorf("%s: %v", tt.what, err)
		}
		if diff := cmp.Diff(tt.left, listed(t, parent)); diff != "" {
			t.Errorf("%s: left is\n%s", tt.what, diff)
		}
	}
}

// A lock that others made is neither taken nor removed.
func TestALockOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockName)
	for _, content := range []string{"12345\n", `{"holder": "somebody"}`, "{}"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := RemoveStart(t.Context(), dir, true); err != nil {
			t.Error(err)
		}
		if _, err := ClaimDir(t.Context(), dir, "a", false); err == nil {
			t.Errorf("%q: a cluster takes the directory", content)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatalf("%q: %v", content, err)
		}
		if raw, err := os.ReadFile(path); err != nil || string(raw) != content || info.Mode().Perm() != 0o644 {
			t.Errorf("%q became %q, mode %v, %v", content, raw, info.Mode(), err)
		}
	}
}

// A start that fails takes away what it made, and nothing else.
func TestAbandon(t *testing.T) {
	for what, before := range map[string][]string{
		"no directory": nil, "an empty one": {"lib/data/"}, "keys of another server": {"lib/data/pki/ca.crt", "lib/data/pki/ca.key"},
		"a file system": {"lib/data/lost+found/", "lib/data/registries/docker.io/hosts.toml"},
	} {
		parent := t.TempDir()
		files(t, parent, before...)
		was := listed(t, parent)
		dir := filepath.Join(parent, "lib", "data")
		c, err := ClaimDir(t.Context(), dir, "a", false)
		if err != nil || !c.New() {
			t.Fatalf("%s: %v", what, err)
		}
		files(t, dir, "etcd/member/snap/db", "pki/apiserver.key", "coracle.log")
		if err := errors.Join(c.Abandon(), c.Vacate()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(was, listed(t, parent)); diff != "" {
			t.Errorf("%s: left is\n%s", what, diff)
		}
		if err := c.Lock.Release(); err != nil {
			t.Error(err)
		}
	}
}

// Files behind a link in the place of a directory of Coracle's belong to
// others, whatever their names are.
func TestRemovalFollowsNoLink(t *testing.T) {
	theirs := []string{".hidden", "apiserver.crt", "ca.crt", "ca.key", "conf", "conf/10.conflist", "member", "member/db", "sa.key"}
	for _, sub := range []string{"pki", "etcd", "cni"} {
		outside, dir := t.TempDir(), filepath.Join(t.TempDir(), "data")
		files(t, outside, ".hidden", "apiserver.crt", "ca.crt", "ca.key", "conf/10.conflist", "member/db", "sa.key")
		files(t, dir, "pki/")
		link := filepath.Join(dir, sub)
		if err := errors.Join(os.RemoveAll(link), os.Symlink(outside, link)); err != nil {
			t.Fatal(err)
		}
		if sub == "pki" { // which may be there before
			c, err := ClaimDir(t.Context(), dir, "a", false)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.Abandon(), c.Lock.Release()); err != nil {
				t.Error(err)
			}
		}
		if left, err := RemoveData(dir); err != nil || !slices.Equal(left, []string{sub}) {
			t.Errorf("%s: said to be left is %v, %v", sub, left, err)
		}
		if diff := cmp.Diff(theirs, listed(t, outside)); diff != "" {
			t.Errorf("behind the link %s is\n%s", sub, diff)
		}
	}
}

// Only what Coracle lists is removed, and no link is followed.
func TestRemoveDataLeavesWhatIsForeign(t *testing.T) {
	outside := t.TempDir()
	files(t, outside, "precious")
	dir := t.TempDir()
	clusterIn(t, dir, "a")
	files(t, dir, "notes", "etcd/backup.db", "pki/policy.yaml", "pki/company-vpn.key", "pki/oidc-issuer.crt", "pki/.notes", "registries/docker.io/hosts.toml", "lost+found/", "kubelet.d/x", "coracle.log.mine")
	for _, link := range []string{"kubelet/pods/uid/volumes/out", "containerd/out", "etcd/member/out"} {
		if err := os.Symlink(outside, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "logs")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "logs")); err != nil { // in the place of a directory of Coracle's
		t.Fatal(err)
	}
	left, err := RemoveData(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"coracle.log.mine", "etcd", "kubelet.d", "logs", "lost+found", "notes", "pki", "registries"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("said to be left is\n%s", diff)
	}
	want = []string{"coracle.log.mine", "etcd", "etcd/backup.db", "kubelet.d", "kubelet.d/x", "logs", "lost+found", "notes", "pki", "pki/.notes", "pki/company-vpn.key", "pki/oidc-issuer.crt", "pki/policy.yaml", "registries", "registries/docker.io", "registries/docker.io/hosts.toml"}
	if diff := cmp.Diff(want, listed(t, dir)); diff != "" {
		t.Errorf("left is\n%s", diff)
	}
	if diff := cmp.Diff([]string{"precious"}, listed(t, outside)); diff != "" {
		t.Errorf("behind the links is\n%s", diff)
	}
	clean := filepath.Join(t.TempDir(), "clean")
	clusterIn(t, clean, "a")
	if left, err := RemoveData(clean); err != nil || len(left) > 0 {
		t.Errorf("of a cluster alone is left %v, %v", left, err)
	}
	files(t, clean, lockName)
	if err := Vacate(clean, nil); err != nil {
		t.Error(err)
	}
	if left := listed(t, filepath.Dir(clean)); len(left) != 1 {
		t.Errorf("of a directory that was there before is left %v, want the directory alone", left)
	}
	if err := Vacate(clean, []string{clean}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(clean); !os.IsNotExist(err) {
		t.Errorf("its directory: %v", err)
	}
}

// Keys that were in the directory before the cluster stay when it is removed. The
// settings name them; without settings nobody knows whose they are.
func TestRemoveDataLeavesFoundKeys(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "data")
		files(t, dir, "pki/ca.crt", "pki/ca.key", "pki/sa.key", "pki/apiserver.crt")
		c, err := ClaimDir(t.Context(), dir, "a", false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Lock.Release() }()
		clusterIn(t, dir, "a")
		files(t, dir, "pki/sa.pub", "pki/apiserver.key")
		s, err := ReadSettings(dir)
		if err != nil {
			t.Fatal(err)
		}
		s.Found = c.FoundKeys()
		if err := s.Write(); err != nil {
			t.Fatal(err)
		}
		want := []string{lockName, "pki", "pki/ca.crt", "pki/ca.key", "pki/sa.key"}
		if damaged {
			want = append(want, "pki/sa.pub")
			if err := os.WriteFile(SettingsFile(dir), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if left, err := RemoveData(dir); err != nil || !slices.Equal(left, []string{"pki"}) {
			t.Errorf("said to be left is %v, %v", left, err)
		}
		if diff := cmp.Diff(want, listed(t, dir)); diff != "" {
			t.Errorf("damaged settings %t: left is\n%s", damaged, diff)
		}
	}
}

// Pods may nest directories deeper than files can be open.
func TestRemoveTreeThatIsDeep(t *testing.T) {
	parent := t.TempDir()
	top := filepath.Join(parent, "top")
	files(t, top, "file")
	at, err := unix.Open(top, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err := errors.Join(err, unix.Close(at)); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	if err := unix.Close(at); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(top); err != nil {
		t.Error(err)
	}
	if left := listed(t, parent); len(left) > 0 {
		t.Errorf("left is %.100v", left)
	}
}

// Removal never enters file systems that are mounted below a data directory:
// not by removing the cluster, and not by removing a tree.
func TestRemovalStopsAtMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	theirs := t.TempDir()
	files(t, theirs, "precious")
	for _, at := range []string{"kubelet", "kubelet/pods/uid/volumes/disk", "etcd/member", "containerd/root", "containerd/root/mounted", "elsewhere"} {
		dir := filepath.Join(t.TempDir(), "data")
		clusterIn(t, dir, "a")
		point := filepath.Join(dir, at)
		files(t, point, "/")
		if err := unix.Mount(theirs, point, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
		own := strings.HasPrefix(at, "kubelet/pods/") || strings.HasPrefix(at, "containerd/root/")
		if err := RefuseForeignMounts(dir); (err == nil) != own {
			t.Errorf("%s: %v", at, err)
		}
		if _, err := RemoveData(dir); err == nil || !strings.Contains(err.Error(), point) {
			t.Errorf("removed with a mount at %s: %v", at, err)
		}
		if err := tree.Remove(dir); err == nil || !strings.Contains(err.Error(), point) {
			t.Errorf("the tree removed with a mount at %s: %v", at, err)
		}
		if err := UnmountCluster(dir, dir+"-run"); err != nil {
			t.Error(err)
		}
		if mounts, err := mountsBelow(dir); err != nil || (len(mounts) == 0) != own {
			t.Errorf("%s: mounted after unmounting Coracle's own: %v, %v", at, mounts, err)
		}
	}
	if diff := cmp.Diff([]string{"precious"}, listed(t, theirs)); diff != "" {
		t.Errorf("what was mounted is now\n%s", diff)
	}
}

// The root directory of a kubelet that is mounted on itself is unmounted with what the
// kubelet has mounted below, and stays while something else is mounted there.
func TestUnmountsRootsOfKubelets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := filepath.Join(t.TempDir(), "data")
	clusterIn(t, dir, "a")
	mounted := func(source, at, kind string, flags uintptr) string {
		point := filepath.Join(dir, at)
		files(t, point, "/")
		if source == "" {
			source = point
		}
		if err := unix.Mount(source, point, kind, flags, ""); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
		return point
	}
	expect := func(want ...string) {
		t.Helper()
		if got, err := mountsBelow(dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("mounted are %q (%v), want %q", got, err, want)
		}
	}
	first, second := mounted("", "kubelet", "", unix.MS_BIND), mounted("", "nodes/2/kubelet", "", unix.MS_BIND)
	mounted("none", "kubelet/pods/uid/volumes/secret", "tmpfs", 0)
	mounted("none", "nodes/2/kubelet/pods/uid/volumes/secret", "tmpfs", 0)
	disk := mounted("none", "kubelet/disk", "tmpfs", 0)
	deep := mounted("none", "kubelet/disk/deep", "tmpfs", 0)
	err := RefuseForeignMounts(dir)
	for _, want := range []string{"mounted at " + disk + ", " + deep + ",", "(umount " + deep + " " + disk + ")", "a driver in a pod may have mounted it"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error: %v, want %q", err, want)
		}
	}
	if err := unix.Unmount(deep, 0); err != nil {
		t.Fatal(err)
	}
	if err := RefuseForeignMountsOf(dir, 2); err != nil {
		t.Error(err)
	}
	if _, err := RemoveNode(dir, dir+"-run", 2); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(second); !os.IsNotExist(err) {
		t.Errorf("the second kubelet's directory is left: %v", err)
	}
	if err := UnmountCluster(dir, dir+"-run"); err != nil {
		t.Error(err)
	}
	expect(first, disk)
	if err := unix.Unmount(disk, 0); err != nil {
		t.Fatal(err)
	}
	if err := UnmountCluster(dir, dir+"-run"); err != nil {
		t.Error(err)
	}
	expect()
	mounted("", "kubelet", "", unix.MS_BIND)
	mounted("none", "kubelet", "tmpfs", 0)
	if err := RefuseForeignMounts(dir); err == nil {
		t.Error("a disk that is mounted on the root directory is not told of")
	}
	if err := UnmountCluster(dir, dir+"-run"); err != nil {
		t.Error(err)
	}
	expect(first, first)
}

// A mount in a root directory elsewhere is told of if that is mounted on itself, and
// cannot be unmounted otherwise.
func TestForeignMountsElsewhere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, elsewhere := filepath.Join(t.TempDir(), "data"), t.TempDir()
	clusterIn(t, dir, "a")
	s := keptSettings(dir)
	s.Options.KubeletArgs = []string{"root-dir=" + elsewhere}
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(elsewhere, "disk")
	mount := func(source, point, kind string, flags uintptr) {
		t.Helper()
		files(t, point, "/")
		if err := unix.Mount(source, point, kind, flags, ""); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	}
	mount("none", disk, "tmpfs", 0)
	if err := RefuseForeignMounts(dir); err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(disk, 0); err != nil {
		t.Fatal(err)
	}
	mount(elsewhere, elsewhere, "", unix.MS_BIND)
	mount("none", disk, "tmpfs", 0)
	if err := RefuseForeignMounts(dir); err == nil || !strings.Contains(err.Error(), "mounted at "+disk+",") {
		t.Errorf("error: %v", err)
	}
}

// The root directory of a kubelet is shared if it is on a shared mount, wherever it is. A
// node that is not there has none, and one that has not mounted anything may not have
// started.
func TestSharedRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, elsewhere := filepath.Join(t.TempDir(), "data"), t.TempDir()
	clusterIn(t, dir, "a")
	s := keptSettings(dir)
	s.Options.KubeletArgs = []string{"root-dir=" + elsewhere}
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	second, third := filepath.Join(dir, "nodes/2/kubelet"), filepath.Join(dir, "nodes/3/kubelet")
	files(t, dir, "nodes/2/kubelet/pods/", "nodes/3/kubelet/")
	for point, propagation := range map[string]uintptr{elsewhere: unix.MS_SHARED, second: unix.MS_PRIVATE, third: unix.MS_PRIVATE} {
		if err := unix.Mount(point, point, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
		if err := unix.Mount("none", point, "", propagation, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("none", filepath.Join(second, "pods"), "tmpfs", 0, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	got, err := SharedRoots(dir)
	if diff := cmp.Diff(map[string]bool{elsewhere: true, second: false}, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
}

// Volumes are unmounted where the kubelet has them: also where its directory
// was moved, with a link in its place, and where its flag names it.
func TestUnmountsWhereTheKubeletIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	for what, arrange := range map[string]func(dir, elsewhere string) error{
		"a link": func(dir, elsewhere string) error {
			link := filepath.Join(dir, "kubelet")
			return errors.Join(os.RemoveAll(link), os.Symlink(elsewhere, link))
		},
		"root-dir": func(dir, elsewhere string) error {
			s := keptSettings(dir)
			s.Options.KubeletArgs = []string{"root-dir=" + elsewhere}
			return s.Write()
		},
	} {
		dir, elsewhere := filepath.Join(t.TempDir(), "data"), t.TempDir()
		clusterIn(t, dir, "a")
		point, foreign := filepath.Join(elsewhere, "pods/uid/volumes/secret"), filepath.Join(elsewhere, "disk")
		files(t, elsewhere, "pods/uid/volumes/secret/", "disk/")
		if err := arrange(dir, elsewhere); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{point, foreign} {
			if err := unix.Mount("none", at, "tmpfs", 0, ""); err != nil {
				t.Skipf("cannot mount here: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		}
		if err := UnmountCluster(dir, dir+"-run"); err != nil {
			t.Error(err)
		}
		if left, err := mountsBelow(elsewhere); err != nil || !slices.Equal(left, []string{foreign}) {
			t.Errorf("%s: mounted are %v, %v", what, left, err)
		}
	}
}
