package printable

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ in, line, written string }{
		{"plain text, größer, 中", "plain text, größer, 中", "plain text, größer, 中"},
		{"a\tb\r\nc", "a b  c", "a b \nc"},
		{"red \x1b[31m\x07", "red [31m", "red [31m"},
		{"CSI \u009b2J, delete \x7f", "CSI 2J, delete ", "CSI 2J, delete "},
		{"direction \u202eabc\u2066", "direction abc", "direction abc"},
		{"line separator\u2028x", "line separator x", "line separator x"},
		{"not UTF-8 \x9b2J", "not UTF-8 \ufffd2J", "not UTF-8 \ufffd2J"},
	} {
		if got := Line(c.in); got != c.line {
			t.Errorf("Line(%q) = %q, want %q", c.in, got, c.line)
		}
		var b strings.Builder
		if n, err := (Writer{&b}).Write([]byte(c.in)); n != len(c.in) || err != nil || b.String() != c.written {
			t.Errorf("Write(%q) wrote %q and returned %d, %v; want %q", c.in, b.String(), n, err, c.written)
		}
	}
}

func TestJSON(t *testing.T) {
	const text = "\u009b2J \u202e \U000e0041 \x1b 中\n"
	encoded, err := json.MarshalIndent([]string{text}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	safe := JSON(encoded)
	if got := Line(strings.ReplaceAll(string(safe), "\n", "")); got != strings.ReplaceAll(string(safe), "\n", "") {
		t.Errorf("%q has control characters", safe)
	}
	var decoded []string
	if err := json.Unmarshal(safe, &decoded); err != nil || decoded[0] != text {
		t.Errorf("%s is %q, %v; want %q", safe, decoded, err, text)
	}
}
