// Package hostpath translates between the usual paths of a kubelet's directories and
// the paths of those of this kubelet.
//
// What is installed as a DaemonSet, such as a CSI driver or a collector of logs, takes
// the usual ones for granted: it mounts them as hostPath volumes, and names its socket
// by them. They are not this kubelet's where several clusters share a machine, or where
// another kubelet runs. Pods and plugins use them all the same; the kubelet, its records
// and the container runtime use the real ones.
package hostpath

import (
	"path/filepath"
	"slices"

	"github.com/coracle-io/coracle/internal/beneath"
)

// The usual directories.
const (
	Root     = "/var/lib/kubelet"
	Logs     = "/var/log"
	PodLogs  = Logs + "/pods"
	LogLinks = Logs + "/containers"
)

// Directories are the directories of a kubelet that are not the usual ones. The zero
// value has none: it changes no path.
type Directories struct{ moved []moved }

type moved struct{ usual, real string }

// New returns the directories of a kubelet with these real paths: its root directory,
// that of the pods' logs, and that of the links to the logs of containers.
func New(root, podLogs, logLinks string) Directories {
	all := []moved{{Root, filepath.Clean(root)}, {PodLogs, filepath.Clean(podLogs)}, {LogLinks, filepath.Clean(logLinks)}}
	return Directories{slices.DeleteFunc(all, func(m moved) bool { return m.usual == m.real })}
}

// Real returns the real path of what a pod or a plugin names. A path that is neither a
// usual directory nor below one is returned as it is, and so is one that is real
// already.
func (d Directories) Real(path string) string { return translate(path, d.moved) }

// Usual returns the path by which a pod or a plugin that knows the usual directories
// names a real one. A path elsewhere is returned as it is.
func (d Directories) Usual(path string) string {
	reverse := make([]moved, len(d.moved))
	for i, m := range d.moved {
		reverse[i] = moved{usual: m.real, real: m.usual}
	}
	return translate(path, reverse)
}

// translate replaces the beginning of a path. One directory may be below another: the
// longest one that has the path says whether there is something to replace.
func translate(path string, all []moved) string {
	length, out := 0, path
	consider := func(dir, in string) {
		if rest, ok := beneath.Rel(dir, path); ok && len(dir) > length {
			length, out = len(dir), path
			if in != "" {
				out = filepath.Join(in, rest)
			}
		}
	}
	for _, m := range all {
		consider(m.real, "")
		consider(m.usual, m.real)
	}
	return out
}
