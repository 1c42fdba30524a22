package spec

import (
	"errors"
	"strings"
)

// ErrTooLong is the error of an expansion that exceeds its limit.
var ErrTooLong = errors.New("too long")

// Lookup returns a function that returns the value of a variable.
func Lookup(variables []Variable) func(name string) (value string, ok bool) {
	known := make(map[string]string, len(variables))
	for _, v := range variables {
		known[v.Name] = v.Value
	}
	return func(name string) (string, bool) {
		value, ok := known[name]
		return value, ok
	}
}

// Expand replaces $(NAME) by the value of the variable. $$ is an escaped $. A
// reference to an unknown variable stays as it is; unknown has the names, in the
// order of the text. Expand stops with ErrTooLong before the result has more than
// limit bytes: values may be the results of expansions, too, and then double with
// each.
func Expand(text string, lookup func(name string) (value string, ok bool), limit int) (expanded string, unknown []string, err error) {
	if !strings.Contains(text, "$") {
		if len(text) > limit {
			return "", nil, ErrTooLong
		}
		return text, nil, nil
	}
	out := bounded{limit: limit}
	closed := true // a later ) may end a reference
	for i := 0; i < len(text) && !out.full; i++ {
		if text[i] != '$' || i+1 == len(text) {
			out.write(text[i : i+1])
			continue
		}
		end := -1
		if text[i+1] == '(' && closed {
			end = strings.IndexByte(text[i:], ')')
			closed = end >= 0
		}
		switch {
		case text[i+1] == '$':
			out.write("$")
			i++
		case end < 0:
			out.write(text[i : i+2])
			i++
		default:
			name := text[i+len("$(") : i+end]
			if value, ok := lookup(name); ok {
				out.write(value)
			} else {
				out.write(text[i : i+end+1])
				unknown = append(unknown, name)
			}
			i += end
		}
	}
	if out.full {
		return "", nil, ErrTooLong
	}
	return out.text.String(), unknown, nil
}

// bounded is a text of at most limit bytes.
type bounded struct {
	text  strings.Builder
	limit int
	full  bool // something did not fit
}

func (b *bounded) write(s string) {
	if b.full || b.text.Len()+len(s) > b.limit {
		b.full = true
		return
	}
	b.text.WriteString(s)
}
