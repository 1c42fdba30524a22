// Package mountinfo reads which directories of a process are mount points, and
// detaches what is mounted there.
package mountinfo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/beneath"
)

// mount is a line of the table.
type mount struct {
	id, parent, device string
	root               string // what is mounted: a path in the file system of the device
	point              string
	shared             bool
}

// Points returns the mount points of this process, parents first.
func Points() ([]string, error) {
	all, err := table()
	return points(all), err
}

func points(all []mount) []string {
	out := make([]string, len(all))
	for i, m := range all {
		out[i] = m.point
	}
	slices.Sort(out)
	return out
}

// Shared reports whether what is mounted below a path reaches the peers of its mount,
// such as the containers that have the path. The path must not have links.
func Shared(path string) (bool, error) {
	all, err := table()
	return at(all, path).shared, err
}

// at returns the mount on which a path is.
func at(all []mount, path string) mount {
	var found mount
	for _, m := range all { // of several at one point, the last one covers the others
		if _, on := beneath.Rel(m.point, path); on && len(m.point) >= len(found.point) {
			found = m
		}
	}
	return found
}

// IsOnItself reports whether a directory is mounted on itself, so that its files are the
// same when it is unmounted, and nothing else is mounted on it. The path must not have
// links.
func IsOnItself(dir string) (bool, error) {
	all, err := table()
	return isOnItself(all, dir), err
}

func isOnItself(all []mount, dir string) bool {
	n := count(onItself(all), dir)
	return n > 0 && n == count(points(all), dir)
}

// DetachFromItself unmounts a directory that is mounted on itself, unless something else
// is mounted on it or below it. The path must not have links.
func DetachFromItself(dir string) error {
	all, err := table()
	if err != nil || !isOnItself(all, dir) {
		return err
	}
	own := Below(points(all), dir)
	if count(own, dir) != len(own) {
		return nil
	}
	var errs []error
	for range own {
		errs = append(errs, Detach(dir))
	}
	return errors.Join(errs...)
}

func count(points []string, point string) (n int) {
	for _, p := range points {
		if p == point {
			n++
		}
	}
	return n
}

// onItself returns the points of mounts that have a directory on itself.
func onItself(all []mount) []string {
	byID := make(map[string]mount, len(all))
	for _, m := range all {
		byID[m.id] = m
	}
	var out []string
	for _, m := range all {
		below, known := byID[m.parent]
		if !known || m.id == m.parent || m.device != below.device {
			continue
		}
		if rest, err := filepath.Rel(below.point, m.point); err == nil && filepath.Join(below.root, rest) == m.root {
			out = append(out, m.point)
		}
	}
	slices.Sort(out)
	return out
}

// Below returns those points that are a directory or below it.
func Below(points []string, dir string) []string {
	var below []string
	for _, point := range points {
		if _, is := beneath.Rel(dir, point); is {
			below = append(below, point)
		}
	}
	return below
}

// Detach unmounts what is mounted at a point, also if it is in use. It returns no error
// if nothing is mounted there.
func Detach(point string) error {
	err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &fs.PathError{Op: "unmount", Path: point, Err: err}
}

// DetachAll unmounts what is mounted at points, of which some may be below others. What
// was propagated from elsewhere to below one of them stays there.
func DetachAll(points []string) error {
	var errs []error
	for _, point := range points {
		if err := unix.Mount("none", point, "", unix.MS_PRIVATE, ""); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, &fs.PathError{Op: "make private", Path: point, Err: err})
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, point := range slices.SortedFunc(slices.Values(points), func(a, b string) int { return len(b) - len(a) }) {
		errs = append(errs, Detach(point))
	}
	return errors.Join(errs...)
}

// DetachBelow unmounts what is mounted below directories, whose paths have no links, and
// leaves what is mounted on them.
func DetachBelow(dirs ...string) error {
	all, err := Points()
	if err != nil {
		return err
	}
	return DetachAll(slices.DeleteFunc(all, func(point string) bool {
		return !slices.ContainsFunc(dirs, func(dir string) bool {
			rest, in := beneath.Rel(dir, point)
			return in && rest != ""
		})
	}))
}

func table() ([]mount, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parse(string(raw)), nil
}

// parse returns the mounts of a table (proc_pid_mountinfo(5)), in which
// space, tab, newline and backslash are octal escapes.
func parse(table string) []mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []mount
	for line := range strings.Lines(table) {
		// File names may contain other white space.
		fields := strings.Split(line, " ")
		if len(fields) <= 4 {
			continue
		}
		m := mount{id: fields[0], parent: fields[1], device: fields[2], root: unescape.Replace(fields[3]), point: unescape.Replace(fields[4])}
		for _, field := range fields[min(len(fields), 6):] {
			if field == "-" { // the end of the optional fields
				break
			}
			m.shared = m.shared || strings.HasPrefix(field, "shared:")
		}
		out = append(out, m)
	}
	return out
}
