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

// Part returns a part of a directory of the machine as a real directory and a path below
// it. The directory is another one than the given one only if the part is a usual
// directory or below one. Pods may have put links there, so that a caller who follows
// them must keep to the directory.
func (d Directories) Part(dir, sub string) (real, rest string) {
	if in, below := find(filepath.Join(dir, sub), d.moved); in != "" {
		return in, below
	}
	return dir, sub
}

// translate replaces the beginning of a path, if there is something to replace.
func translate(path string, all []moved) string {
	if in, rest := find(path, all); in != "" {
		return filepath.Join(in, rest)
	}
	return path
}

// find returns the real directory for a path in a usual one, and the rest of the path. It
// returns "" if there is none. One directory may be below another: the longest one that
// has the path says whether there is something to replace.
func find(path string, all []moved) (in, rest string) {
	length := 0
	consider := func(dir, real string) {
		if below, ok := beneath.Rel(dir, path); ok && len(dir) > length {
			length, in, rest = len(dir), real, below
		}
	}
	for _, m := range all {
		consider(m.real, "")
		consider(m.usual, m.real)
	}
	return in, rest
}
