// Package mountinfo reads which directories of a process are mount points, and
// detaches what is mounted there.
package mountinfo

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Points returns the mount points of this process, parents first.
func Points() ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parse(string(table)), nil
}

// Below returns those points that are a directory or below it.
func Below(points []string, dir string) []string {
	prefix := strings.TrimSuffix(dir, "/") + "/"
	var below []string
	for _, point := range points {
		if point == dir || strings.HasPrefix(point, prefix) {
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

// parse returns the mount points of a table (proc_pid_mountinfo(5)), in which
// space, tab, newline and backslash are octal escapes.
func parse(table string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(table) {
		// File names may contain other white space.
		if fields := strings.Split(line, " "); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	slices.Sort(points)
	return points
}
