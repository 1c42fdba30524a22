package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// directory is an open directory that may belong to another user. Operations by
// its descriptor stay in it, even if its owner, or the owner of a directory
// above it, moves or replaces directories at the same time:
//
//	/home/u/.kube/config ─► "/" ─► home ─► u ─► .kube ─► config, one openat(2) each
//	                                         └─ a link of u's leads to what is u's, or nowhere
type directory struct {
	fd   int
	path string // as it was found, for messages only
	// linkOwners are the other users whose links have led here.
	linkOwners []uint32
}

// anybody stands for unknown users: those who can write to a directory.
const anybody = ^uint32(0)

// maxLinks is how many links a path may have, as in Linux.
const maxLinks = 40

// openDirectory opens a directory by an absolute path, one name after the
// other. See walk.
func openDirectory(path string, missing bool) (d *directory, made []string, err error) {
	d = &directory{fd: -1}
	if err := d.moveToRoot(); err != nil {
		return d, nil, err
	}
	made, err = d.walk(path, missing)
	return d, made, err
}

// moveToRoot makes d the root directory.
func (d *directory) moveToRoot() error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/", Err: err}
	}
	d.move(fd, "/")
	return nil
}

// move makes d another open directory.
func (d *directory) move(fd int, path string) {
	d.close()
	d.fd, d.path = fd, path
}

// close closes the directory.
func (d *directory) close() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd) // nothing is written by it
	}
	d.fd = -1
}

// walk moves to a directory by a path from d, in which names may be links. If
// missing is set, it makes missing directories and returns their paths, the
// outermost first. After an error d is the last directory reached.
func (d *directory) walk(path string, missing bool) (made []string, err error) {
	rest, links := strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		if rest = rest[1:]; name == "" || name == "." {
			continue
		}
		next, kind, err := d.lookup(name)
		if errors.Is(err, unix.ENOENT) && missing {
			if err := unix.Mkdirat(d.fd, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
				return made, &os.PathError{Op: "mkdir", Path: filepath.Join(d.path, name), Err: err}
			}
			made = append(made, filepath.Join(d.path, name))
			next, kind, err = d.lookup(name)
		}
		if err != nil {
			return made, err
		}
		if kind != unix.S_IFLNK {
			d.move(next, filepath.Join(d.path, name))
			continue
		}
		target, err := d.follow(next)
		if err != nil {
			return made, err
		}
		if links++; links > maxLinks {
			return made, &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return made, d.check()
}

// lookup opens a name in the directory with O_PATH and returns its file type.
// It does not follow a link.
func (d *directory) lookup(name string) (fd int, kind uint32, err error) {
	path := filepath.Join(d.path, name)
	if fd, err = unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return -1, 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, 0, errors.Join(&os.PathError{Op: "stat", Path: path, Err: err}, unix.Close(fd))
	}
	return fd, st.Mode & unix.S_IFMT, nil
}

// follow reads and closes a link in the directory, and records who could have
// put it there. It moves d to the root if the link is absolute.
func (d *directory) follow(link int) (target string, err error) {
	defer func() { _ = unix.Close(link) }()
	var here, there unix.Stat_t
	if err := errors.Join(unix.Fstat(d.fd, &here), unix.Fstat(link, &there)); err != nil {
		return "", err
	}
	if here.Mode&0o022 != 0 && here.Mode&unix.S_ISVTX == 0 {
		d.linkOwners = append(d.linkOwners, anybody)
	}
	for _, uid := range []uint32{here.Uid, there.Uid} {
		if uid != 0 && uid != uint32(os.Geteuid()) && !slices.Contains(d.linkOwners, uid) {
			d.linkOwners = append(d.linkOwners, uid)
		}
	}
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", buffer)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: d.path, Err: err}
	}
	if target = string(buffer[:n]); filepath.IsAbs(target) {
		return target, d.moveToRoot()
	}
	return target, nil
}

// check returns an error if links of other users have led to a directory that
// is not theirs: they could have this process write where they cannot.
func (d *directory) check() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &os.PathError{Op: "open", Path: d.path, Err: unix.ENOTDIR}
	}
	for _, uid := range d.linkOwners {
		if uid != st.Uid {
			return fmt.Errorf("a link that another user can change leads to %s, which belongs to user %d: name the file there itself with --kubeconfig", d.path, st.Uid)
		}
	}
	return nil
}

// file finds a file by its name in the directory. It follows links and returns
// the directory and the name of the file itself, which may be missing. The
// caller closes the returned directory.
func (d *directory) file(name string) (*directory, string, error) {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("open %s again: %w", d.path, err)
	}
	at := &directory{fd: fd, path: d.path, linkOwners: slices.Clone(d.linkOwners)}
	for range maxLinks {
		found, kind, err := at.lookup(name)
		if errors.Is(err, unix.ENOENT) {
			return at, name, nil
		}
		if err != nil {
			return at, "", err
		}
		if kind != unix.S_IFLNK {
			return at, name, unix.Close(found)
		}
		target, err := at.follow(found)
		if err != nil {
			return at, "", err
		}
		if _, err := at.walk(filepath.Dir(target), false); err != nil {
			if errors.Is(err, unix.ENOENT) {
				err = fmt.Errorf("%s is a dangling symbolic link: remove it, or create its target", filepath.Join(d.path, name))
			}
			return at, "", err
		}
		name = filepath.Base(target)
	}
	return at, "", &os.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: unix.ELOOP}
}

// at returns a path of a name in the directory that stays valid when the
// directory is moved.
func (d *directory) at(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, name) }

// remove removes a file or an empty directory.
func (d *directory) remove(name string) error {
	err := unix.Unlinkat(d.fd, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return &os.PathError{Op: "remove", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}
