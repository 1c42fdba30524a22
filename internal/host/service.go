package host

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// ServiceUnit returns the name of the systemd unit whose main process this is,
// or "".
func ServiceUnit() string {
	notifies := os.Getenv("NOTIFY_SOCKET") != ""
	if started := os.Getenv("INVOCATION_ID") != "" && os.Getppid() == 1; !notifies && !started {
		return ""
	}
	return ownUnit()
}

// ownUnit returns the unit whose control group this process is in, or "".
func ownUnit() string {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return unitOf(string(groups))
}

// unitOf returns the unit in the content of a /proc/PID/cgroup: in the
// hierarchy of systemd, or the only one (cgroups(7)).
func unitOf(groups string) string {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) != 3 || parts[1] != "" && parts[1] != "name=systemd" {
			continue
		}
		for group := parts[2]; group != "/" && group != "."; group = path.Dir(group) {
			if unit := path.Base(group); strings.HasSuffix(unit, ".service") {
				return unit
			}
		}
	}
	return ""
}

// RefuseService returns an error while systemd runs the cluster, because
// systemd would start it again. verb is systemctl's command for what is wanted.
// Commands of the unit itself are allowed.
func (rec Record) RefuseService(verb string) error {
	if rec.Unit == "" || !rec.Running() || ownUnit() == rec.Unit {
		return nil
	}
	return fmt.Errorf("systemd runs cluster %s as %s and would start it again: end it with systemctl %s %s", rec.Name, rec.Unit, verb, rec.Unit)
}
