// Package memory finds out how much memory a process may use, and admits
// requests only while what they need fits into it.
//
//	machine, control groups ──Available──► limit of the process (GOMEMLIMIT)
//	                                          │
//	live heap + reservations ──Budget──► does a large request still fit?
//
// The package changes nothing about the process. Package main sets its limit.
package memory

import (
	"bufio"
	"errors"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Available returns how much memory this process may use at most, in bytes:
// the least of the machine's memory and the limits of the control groups that
// the process is in, of version 1 or 2. root is the root file system of the
// process. Available returns math.MaxInt64 if nothing is known.
func Available(root fs.FS) int64 {
	least := machine(root)
	for _, g := range groups(root) {
		// A limit holds for all groups below it.
		for dir := g.dir; ; dir = path.Dir(dir) {
			least = min(least, number(root, path.Join(dir, g.file)))
			if dir == g.mount || len(dir) <= len(g.mount) {
				break
			}
		}
	}
	return least
}

// machine returns the machine's memory in bytes.
func machine(root fs.FS) int64 {
	raw, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return math.MaxInt64
	}
	for line := range strings.Lines(string(raw)) {
		if after, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			fields := strings.Fields(after)
			if len(fields) == 0 {
				break
			}
			if kilobytes, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
				return kilobytes << 10
			}
		}
	}
	return math.MaxInt64
}

// group is a control group of the process in one hierarchy.
type group struct {
	mount string // where the hierarchy is mounted
	dir   string // the group's own directory, at or below mount
	file  string // the name of the file that holds the limit
}

// groups returns the control groups that may limit the process's memory.
func groups(root fs.FS) []group {
	memberships, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	var unified, legacy string
	for line := range strings.Lines(string(memberships)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, dir, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case id == "0" && controllers == "":
			unified = dir
		case limitsMemory(controllers):
			legacy = dir
		}
	}
	mounts, err := root.Open("proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer func() { _ = mounts.Close() }()
	var found []group
	for scanner := bufio.NewScanner(mounts); scanner.Scan(); {
		before, after, ok := strings.Cut(scanner.Text(), " - ")
		mount, source := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(source) < 3 {
			continue
		}
		switch kind, options := source[0], source[2]; {
		case kind == "cgroup2" && unified != "":
			found = append(found, newGroup(mount[3], mount[4], unified, "memory.max"))
		case kind == "cgroup" && legacy != "" && limitsMemory(options):
			found = append(found, newGroup(mount[3], mount[4], legacy, "memory.limit_in_bytes"))
		}
	}
	return found
}

// limitsMemory reports whether the memory controller is in a list of controllers, or of
// mount options.
func limitsMemory(list string) bool { return slices.Contains(strings.Split(list, ","), "memory") }

// newGroup finds the directory of a group. root is the directory of the
// hierarchy that is mounted, which in a container may be the group itself.
func newGroup(root, mount, dir, file string) group {
	mount = strings.TrimPrefix(mount, "/")
	below, ok := strings.CutPrefix(dir, strings.TrimSuffix(root, "/"))
	if !ok || below != "" && below[0] != '/' {
		below = ""
	}
	return group{mount: mount, dir: path.Join(mount, below), file: file}
}

// number reads a limit from a file; no limit is math.MaxInt64.
func number(root fs.FS, file string) int64 {
	raw, err := fs.ReadFile(root, file)
	if err != nil {
		return math.MaxInt64
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || n <= 0 {
		return math.MaxInt64 // "max"
	}
	return n
}
