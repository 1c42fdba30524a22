package flagvalue

import (
	"slices"
	"strings"
)

// Argument is an argument of a component as users give it with --COMPONENT-arg:
// NAME=VALUE, NAME alone, or NAME-, which removes NAME. Dashes in front are optional.
type Argument struct {
	Name, Value string
	HasValue    bool // NAME= has an empty one
	Removes     bool
}

// ParseArgument returns the parts of an argument. Its name may be that of no flag.
func ParseArgument(argument string) Argument {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
	a := Argument{Name: name, Value: value, HasValue: hasValue}
	if !hasValue {
		a.Name, a.Removes = strings.CutSuffix(name, "-")
	}
	return a
}

// Last returns the value of the last argument with a name, or "".
func Last(arguments []string, name string) string {
	for _, text := range slices.Backward(arguments) {
		if a := ParseArgument(text); a.Name == name {
			return a.Value
		}
	}
	return ""
}
