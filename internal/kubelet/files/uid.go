package files

import "strings"

// IsPodUID reports whether a name is a UUID in lower case, as API servers give
// pods, or a hash, as pods of files have. The directories of pods are called by
// their UIDs: others are nobody's to remove.
func IsPodUID(name string) bool {
	const hash, uuid = 32, 36
	return (len(name) == hash || len(name) == uuid) && strings.Trim(name, "0123456789abcdef-") == ""
}
