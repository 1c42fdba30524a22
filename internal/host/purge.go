package host

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// UnmountBelow unmounts everything below the directories, the deepest first.
func UnmountBelow(dirs ...string) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	slices.SortFunc(mounts, func(a, b string) int { return len(b) - len(a) })
	var errs []error
	for _, m := range mounts {
		if !slices.ContainsFunc(dirs, func(dir string) bool { return m == dir || strings.HasPrefix(m, dir+"/") }) {
			continue
		}
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	return errors.Join(errs...)
}

// mountPoints reads /proc/self/mountinfo (proc(5)), where space, tab, newline
// and backslash are written in octal.
func mountPoints() ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points, lines.Err()
}

// RemoveDir removes a directory with everything in it, and then those of its
// parents below /var/lib and /run that are empty and ours.
func RemoveDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if parent := filepath.Dir(dir); filepath.Base(parent) == "coracle" {
		_ = os.Remove(parent) // only when empty
	}
	return nil
}
