package files

import "strings"

// IsPodUID reports whether name has the form of a pod's UID: a UUID in lower
// case, as the API server creates them, or a hash, as static pods have. The
// directories of pods are named by their UIDs. Directories with other names are
// not the kubelet's to remove.
func IsPodUID(name string) bool {
	const hash, uuid = 32, 36
	return (len(name) == hash || len(name) == uuid) && strings.Trim(name, "0123456789abcdef-") == ""
}
