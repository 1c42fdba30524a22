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

// directory is an open directory of anybody's. What is done by its descriptor
// stays in it, whatever its owner, or who owns one above it, moves or puts in
// its place meanwhile:
//
//	/home/u/.kube/config ─► "/" ─► home ─► u ─► .kube ─► config, one openat(2) each
//	                                         └─ a link of u's leads to what is u's, or nowhere
type directory struct {
	fd   int
	path string // as it was found, for messages
	// led are the other users who could have led here by a link.
	led []uint32
}

// anybody stands for users who are not known: whoever can write to a directory.
const anybody = ^uint32(0)

// maxLinks is how many links a path may have, as in Linux.
const maxLinks = 40

// openDirectory opens a directory one name after the other, as walk does.
func openDirectory(path string, missing bool) (d *directory, made []string, err error) {
	d = &directory{fd: -1}
	if err := d.toRoot(); err != nil {
		return d, nil, err
	}
	made, err = d.walk(path, missing)
	return d, made, err
}

// toRoot makes the directory that of the root.
func (d *directory) toRoot() error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/", Err: err}
	}
	d.move(fd, "/")
	return nil
}

// move makes the directory another one, which is open.
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

// walk goes on to a directory by its path from here, whose names may be links.
// What is missing is made if that is asked for, and returned, the outermost
// first. After an error the directory is how far it came.
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

// lookup opens what has a name in the directory, a link itself, without using
// it, and returns its kind.
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

// follow reads and closes a link in the directory, and notes who could have put
// it there. The directory is where it leads from then on.
func (d *directory) follow(link int) (target string, err error) {
	defer func() { _ = unix.Close(link) }()
	var here, there unix.Stat_t
	if err := errors.Join(unix.Fstat(d.fd, &here), unix.Fstat(link, &there)); err != nil {
		return "", err
	}
	if here.Mode&0o022 != 0 && here.Mode&unix.S_ISVTX == 0 {
		d.led = append(d.led, anybody)
	}
	for _, uid := range []uint32{here.Uid, there.Uid} {
		if uid != 0 && uid != uint32(os.Geteuid()) && !slices.Contains(d.led, uid) {
			d.led = append(d.led, uid)
		}
	}
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", buffer)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: d.path, Err: err}
	}
	if target = string(buffer[:n]); filepath.IsAbs(target) {
		return target, d.toRoot()
	}
	return target, nil
}

// check refuses a directory to which somebody else's link has led unless it is
// his as well: he would have this process write where he cannot.
func (d *directory) check() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &os.PathError{Op: "open", Path: d.path, Err: unix.ENOTDIR}
	}
	for _, uid := range d.led {
		if uid != st.Uid {
			return fmt.Errorf("a link that another user can change leads to %s, which belongs to user %d: name the file there itself with --kubeconfig", d.path, st.Uid)
		}
	}
	return nil
}

// file finds where a file is by its name here: a link is followed to the
// directory and the name of what it names, which may be missing. The directory
// that is returned is one of its own.
func (d *directory) file(name string) (*directory, string, error) {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("open %s again: %w", d.path, err)
	}
	at := &directory{fd: fd, path: d.path, led: slices.Clone(d.led)}
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
				err = fmt.Errorf("%s is a link to nothing: remove it, or make what it names", filepath.Join(d.path, name))
			}
			return at, "", err
		}
		name = filepath.Base(target)
	}
	return at, "", &os.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: unix.ELOOP}
}

// at is a path of a name in the directory that stays good whatever happens to
// the directory's own.
func (d *directory) at(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, name) }

// remove removes a file, or a directory that is empty.
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
