// Package goldentest compares texts with recorded files.
package goldentest

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Compare fails the test if a file has another text. With rewrite, the file gets
// the text first. how says how to rewrite it.
func Compare(t *testing.T, file, text string, rewrite bool, how string) {
	t.Helper()
	if rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s differs (-want +got; if that is meant: %s):\n%s", file, how, diff)
	}
}
