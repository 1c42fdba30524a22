package spec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Bounds of execve(2), in bytes.
const (
	// maxString is the size of one argument or environment variable:
	// MAX_ARG_STRLEN without the zero byte at its end.
	maxString = 128<<10 - 1
	// maxStrings is the size of all of them: a quarter of the stack, whose usual
	// limit is 8 MiB.
	maxStrings = 2 << 20
)

// mostOfPod is what all containers of a pod get together, in bytes. The container runtime
// keeps the strings of each, so that 512 containers with a large config map would take a
// gigabyte of the node's disk.
const mostOfPod = 32 << 20

// stringCost is what the kernel counts for a string besides its bytes: the zero
// byte at its end and the pointer to it.
const stringCost = 1 + 8

// variableSize returns the length of a variable as the process gets it,
// NAME=value.
func variableSize(nameLen, valueLen int) int { return nameLen + len("=") + valueLen }

// execLimits counts the arguments and environment variables of one container.
// What it has accepted is never more than execve takes, so that references
// between variables cannot multiply without end.
type execLimits struct {
	used, most int
}

// limitsOf returns the limits of a container of a pod.
func limitsOf(pod *v1.Pod) execLimits {
	containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	return execLimits{most: min(maxStrings, mostOfPod/max(containers, 1))}
}

// add counts a string of length bytes. kind and name are for errors.
func (l *execLimits) add(kind, name string, length int) error {
	if length > maxString {
		return errStringTooLong(kind, name)
	}
	l.used += length + stringCost
	if l.used > l.most {
		whose := "a process"
		if l.most < maxStrings {
			whose = "a process of a pod with so many containers"
		}
		return fmt.Errorf("%w: the arguments and environment variables of the container take more than the %d bytes that %s can get, up to %s %s", ErrConfig, l.most, whose, kind, name)
	}
	return nil
}

// remove takes back what add has counted.
func (l *execLimits) remove(length int) { l.used -= length + stringCost }

func errStringTooLong(kind, name string) error {
	return fmt.Errorf("%w: %s %s takes more than the %d bytes that a process can get in one string", ErrConfig, kind, name, maxString)
}

// variable is the kind of environment variables in errors.
const variable = "environment variable"

// variables collects the environment of a container. A later variable replaces
// an earlier one of the same name, in its place.
type variables struct {
	list   []Variable
	index  map[string]int // in list, by name
	limits execLimits
}

// put adds a variable.
func (v *variables) put(name, value string) error {
	i, replaces := v.index[name]
	if replaces {
		v.limits.remove(variableSize(len(name), len(v.list[i].Value)))
	}
	if err := v.limits.add(variable, name, variableSize(len(name), len(value))); err != nil {
		return err
	}
	if replaces {
		v.list[i].Value = value
		return nil
	}
	v.index[name] = len(v.list)
	v.list = append(v.list, Variable{name, value})
	return nil
}

// value returns the value of a variable that put has added.
func (v *variables) value(name string) (string, bool) {
	i, ok := v.index[name]
	if !ok {
		return "", false
	}
	return v.list[i].Value, true
}
