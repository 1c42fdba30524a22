package spec

import (
	"fmt"
	"strings"
)

// Bounds of one variable of an environment file.
const (
	maxEnvKey   = 128
	maxEnvValue = 32 << 10
)

// FromEnvFile finds a variable in the text of an environment file: lines of
// NAME=value, blank ones, and comments that begin with #. White space around
// names and values and one pair of quotes around a value do not count.
func FromEnvFile(raw []byte, key string) (value string, found bool, err error) {
	if len(key) > maxEnvKey {
		return "", false, fmt.Errorf("the key has %d characters, more than %d", len(key), maxEnvKey)
	}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.TrimSpace(name) != key {
			continue
		}
		value = strings.TrimSpace(value)
		for _, quote := range []string{`'`, `"`} {
			if len(value) > 1 && strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
				value = value[1 : len(value)-1]
				break
			}
		}
		if len(value) > maxEnvValue {
			return "", false, fmt.Errorf("the value of %s has %d bytes, more than %d", key, len(value), maxEnvValue)
		}
		if strings.ContainsRune(value, 0) {
			return "", false, fmt.Errorf("the value of %s has a zero byte", key)
		}
		return value, true, nil
	}
	return "", false, nil
}
