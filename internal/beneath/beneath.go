// Package beneath compares the names of directories and of what is in them.
package beneath

import "path/filepath"

// Rel returns a path relative to a directory that it is, which is "", or that it is
// below. It compares names alone and does not look at the disk, so that neither should
// have links. It reports false for any other path, also if one of the two is relative.
func Rel(dir, path string) (rest string, ok bool) {
	rest, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rest) {
		return "", false
	}
	if rest == "." {
		rest = ""
	}
	return rest, true
}
