// Package printable makes text that pods, clients and nodes control safe to
// print: its control characters could rewrite what the terminal shows, and its
// line breaks could look like lines of the program.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// controls reports whether a rune is a control or format character. Among the
// latter are those that change the direction of text.
func controls(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// Line returns s as one line: white space becomes spaces, and control and
// format characters are removed.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case controls(r):
			return -1
		}
		return r
	}, s)
}

// Writer removes control and format characters except line feeds. Each Write
// must get whole characters.
type Writer struct{ io.Writer }

// Write implements io.Writer.
func (w Writer) Write(b []byte) (int, error) {
	lines := strings.Split(string(b), "\n")
	for i := range lines {
		lines[i] = Line(lines[i])
	}
	if _, err := io.WriteString(w.Writer, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(b), nil
}

// JSON escapes control and format characters in a JSON text. encoding/json only
// escapes such characters of ASCII.
func JSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r == '\n' || !controls(r) {
			out = append(out, string(r)...)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
