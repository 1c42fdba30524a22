package etcd

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// etcd maps its database into memory. Pages that were read count as memory of
// the process until the kernel reclaims them.

// databaseFile returns the path of the database in a data directory.
func databaseFile(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// releasePages releases the mapped pages of a file. The kernel reads them again
// when they are used.
func releasePages(file string) error {
	file, err := realPath(file)
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("find the pages of %s: %w", file, err)
	}
	defer func() { _ = maps.Close() }()
	for scanner := bufio.NewScanner(maps); scanner.Scan(); {
		start, length, name := mapping(scanner.Text())
		if name != file {
			continue
		}
		// MADV_PAGEOUT never changes the content of memory. If the address
		// range now belongs to another mapping, the next access to that is
		// slower, nothing else.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, length, unix.MADV_PAGEOUT); errno != 0 {
			return fmt.Errorf("release the pages of %s: %w", file, errno)
		}
	}
	return nil
}

// realPath returns the name of a file as in /proc/self/maps.
func realPath(file string) (string, error) {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(absolute)
}

// mapping parses a line of proc_pid_maps(5): start-end perms offset dev inode name.
func mapping(line string) (start, length uintptr, name string) {
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return 0, 0, ""
	}
	from, to, _ := strings.Cut(fields[0], "-")
	first, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return 0, 0, ""
	}
	end, err := strconv.ParseUint(to, 16, 64)
	if err != nil || end < first {
		return 0, 0, ""
	}
	return uintptr(first), uintptr(end - first), strings.Join(fields[5:], " ")
}
