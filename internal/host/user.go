package host

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/coracle-io/coracle/internal/clusternames"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// Each user has clusters of their own. Clusters of root are in the directories of
// the machine, clusters of other users in the directories of the XDG Base
// Directory Specification:
//
//	root    /var/lib/coracle           /run/coracle/NAME
//	others  $XDG_DATA_HOME/coracle     $XDG_STATE_HOME/coracle/run/NAME
//
// Sockets are not in $XDG_RUNTIME_DIR, which is removed when the user logs out: a
// cluster runs on.

// RootOfRoot is the Root of the user root.
const RootOfRoot = "/var/lib/coracle"

// Root returns the default directory of the data of this user's clusters and of
// their records.
func Root() string { return thisUser().root() }

// RunDir returns the directory of the sockets of a new cluster of this user.
func RunDir(name string) string { return thisUser().runDir(name) }

// MakeRunDir makes a directory of sockets, or returns an error if other users can
// replace it: processes of the cluster are ended as files in it say.
func MakeRunDir(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	above := filepath.Dir(dir) // of all clusters
	check := []string{dir, above}
	if filepath.Base(above) == "run" {
		check = append(check, filepath.Dir(above))
	}
	for _, path := range check {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if err := sharedfile.CheckOwner(path, info); err != nil {
			return err
		}
	}
	return nil
}

// owner is a user who has clusters.
type owner struct {
	uid    int
	getenv func(string) string
	home   func() string // the home directory if $HOME is not set; "" if unknown
}

func thisUser() owner {
	uid := os.Geteuid()
	return owner{uid, os.Getenv, func() string {
		u, err := user.LookupId(strconv.Itoa(uid))
		if err != nil {
			return ""
		}
		return u.HomeDir
	}}
}

func (o owner) root() string {
	if o.uid == 0 {
		return RootOfRoot
	}
	return filepath.Join(o.base("XDG_DATA_HOME", ".local/share"), "coracle")
}

func (o owner) runDir(name string) string {
	if o.uid == 0 {
		return clusternames.RunDir(name)
	}
	return filepath.Join(o.base("XDG_STATE_HOME", ".local/state"), "coracle", "run", name)
}

// base returns the directory in a variable, or else one below the home directory.
// Relative paths do not count, as the specification says. Without a home
// directory it is below /, where the user cannot write.
func (o owner) base(variable, inHome string) string {
	if dir := o.getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	home := o.getenv("HOME")
	if !filepath.IsAbs(home) {
		home = o.home()
	}
	return filepath.Join("/", home, inHome)
}
