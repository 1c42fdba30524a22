package main

import (
	"errors"
	"strings"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

// inFlags returns the text of an error with the names of flags in place of
// fields of cluster.Options.
func inFlags(err error) string {
	text := err.Error()
	for _, f := range fieldErrors(err) {
		if flag := host.FlagOf(f.Field); flag != "" {
			text = strings.Replace(text, f.Error(), "--"+flag+strings.TrimPrefix(f.Error(), f.Field), 1)
		}
	}
	return text
}

// fieldErrors returns the field errors that an error wraps or joins.
func fieldErrors(err error) []*cluster.FieldError {
	if field, ok := err.(*cluster.FieldError); ok {
		return []*cluster.FieldError{field}
	}
	var found []*cluster.FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			found = append(found, fieldErrors(one)...)
		}
	} else if inner := errors.Unwrap(err); inner != nil {
		found = fieldErrors(inner)
	}
	return found
}
