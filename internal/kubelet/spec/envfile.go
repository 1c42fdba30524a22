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

// FromEnvFile returns a variable of an environment file (KEP-3721):
//
//	file ::= { blank line | # comment | NAME='value' [ # comment ] }
//
// A value may contain line breaks and anything but a single quote. A value that
// begins with a blank is empty. White space before a name and a comment after a
// value are ignored. Lines after the variable are not parsed.
func FromEnvFile(raw []byte, key string) (value string, found bool, err error) {
	if len(key) > maxEnvKey {
		return "", false, fmt.Errorf("the key has %d characters, more than %d", len(key), maxEnvKey)
	}
	rest := strings.TrimSuffix(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\r")
	for number := 1; rest != ""; {
		line, after, _ := strings.Cut(rest, "\n")
		name, assigned, isAssignment := strings.Cut(strings.TrimLeft(line, " \t"), "=")
		begun := number
		number++
		value := ""
		switch {
		case strings.Trim(line, " \t") == "", strings.HasPrefix(name, "#"):
			rest = after
			continue
		case !isAssignment:
			return "", false, fmt.Errorf("line %d has no =, write NAME='value'", begun)
		case name == "":
			return "", false, fmt.Errorf("line %d has no name before the =", begun)
		case strings.HasSuffix(name, " ") || strings.HasSuffix(name, "\t"):
			return "", false, fmt.Errorf("line %d has a blank before the =", begun)
		case strings.HasPrefix(assigned, " ") || strings.HasPrefix(assigned, "\t"):
			rest = after
		case !strings.HasPrefix(assigned, "'"):
			return "", false, fmt.Errorf("line %d has a value without single quotes, write NAME='value'", begun)
		default:
			quoted := rest[len(line)-len(assigned)+1:]
			var closed bool
			if value, rest, closed = strings.Cut(quoted, "'"); !closed {
				return "", false, fmt.Errorf("line %d has a value without a closing quote", begun)
			}
			number += strings.Count(value, "\n")
			var comment string
			comment, rest, _ = strings.Cut(rest, "\n")
			if comment = strings.TrimLeft(comment, " \t"); comment != "" && !strings.HasPrefix(comment, "#") {
				return "", false, fmt.Errorf("line %d has more than a comment after the closing quote", number-1)
			}
		}
		if name == key {
			return value, true, checkEnvValue(key, value)
		}
	}
	return "", false, nil
}

func checkEnvValue(key, value string) error {
	if len(value) > maxEnvValue {
		return fmt.Errorf("the value of %s has %d bytes, more than %d", key, len(value), maxEnvValue)
	}
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("the value of %s has a zero byte", key)
	}
	return nil
}
