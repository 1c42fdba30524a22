package bounded

import (
	"io"
	"strings"
	"testing"
)

func TestBuffer(t *testing.T) {
	b := NewBuffer(3)
	if n, err := b.Write([]byte("abc")); n != 3 || err != nil || b.IsCut() || string(b.Bytes()) != "abc" {
		t.Errorf("%d, %v: kept %q, cut: %v", n, err, b, b.IsCut())
	}
	if n, err := b.Write([]byte("d")); n != 1 || err != nil || !b.IsCut() || b.String() != "abc" {
		t.Errorf("%d, %v: kept %q, cut: %v", n, err, b, b.IsCut())
	}
	if _, err := b.Write(nil); err != nil || b.String() != "abc" {
		t.Errorf("after an empty write: %v", err)
	}
}

// The output of a program is copied from a pipe.
func TestCopy(t *testing.T) {
	b := NewBuffer(3)
	if n, err := io.Copy(b, struct{ io.Reader }{strings.NewReader("abcd")}); n != 4 || err != nil || !b.IsCut() || b.String() != "abc" {
		t.Errorf("%d, %v: kept %q, cut: %v", n, err, b, b.IsCut())
	}
}
