package cgroup

import "strings"

// Membership returns the control group of a process from the content of its
// /proc/PID/cgroup (cgroups(7)): the one of version 2, or else the one that it has in the
// hierarchies of both CPU and memory, of which systemd may have made only a part. It
// returns "" if there is none, or if it is outside of the namespace of this process.
func Membership(content string) string {
	groups := map[string]string{} // by controller; version 2 has the one ""
	for line := range strings.Lines(content) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok || strings.HasPrefix(group, "/..") {
			continue
		}
		for controller := range strings.SplitSeq(controllers, ",") {
			groups[controller] = group
		}
	}
	cpu, legacy := groups["cpu"]
	switch systemd := groups["name=systemd"]; {
	case !legacy:
		return groups[""]
	case cpu != groups["memory"]:
		return ""
	case systemd != "":
		return systemd
	}
	return cpu
}
