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

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
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

// DeleteLink removes a network interface, if it is there.
func DeleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		}
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("delete interface %s: %w", name, err)
	}
	return nil
}

// DeleteTables removes the nftables tables of that name, of every family.
func DeleteTables(name string) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	tables, err := c.ListTables()
	if err != nil {
		return fmt.Errorf("list nftables tables: %w", err)
	}
	found := false
	for _, t := range tables {
		if t.Name == name {
			c.DelTable(t)
			found = true
		}
	}
	if !found {
		return nil
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete nftables table %s: %w", name, err)
	}
	return nil
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
