package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPatchesApply checks that each patch applies to the code as it is, that Go can read the changed
// files, and that docs/simulation.md has the error. The command compiles them: that takes longer.
func TestPatchesApply(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	document, err := os.ReadFile(filepath.Join(root, "docs", "simulation.md"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := mutants()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if !strings.Contains(string(document), "| "+m.name+" |") {
			t.Errorf("docs/simulation.md has no row of %s", m.name)
		}
		changed, err := m.changedFiles(root)
		if err != nil {
			t.Error(err)
		}
		for file, content := range changed {
			if _, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution); err != nil {
				t.Errorf("patch %s: %v", m.name, err)
			}
		}
	}
}

func TestApply(t *testing.T) {
	const patch = `What is wrong.

diff --git a/dir/a.go b/dir/a.go
index 1234567..89abcde 100644
--- a/dir/a.go
+++ b/dir/a.go
@@ -10,3 +10,2 @@ func f() {
 	one
-	two

@@ -20,2 +19,3 @@ func g() {
 	four
+	five
--- a/b.go
+++ b/b.go
@@ -1 +1 @@
-six
+seven
`
	changes, err := parse(patch)
	if err != nil || len(changes) != 2 || changes[0].file != "dir/a.go" || changes[1].file != "b.go" {
		t.Fatal(changes, err)
	}
	for content, want := range map[string]string{
		"head\n\tone\n\ttwo\n\n\tfour\ntail\n":                  "head\n\tone\n\n\tfour\n\tfive\ntail\n",
		"head\n\tone\n\ttwo\n\ttail\n":                          "",
		"\tone\n\ttwo\n\n\tfour\n\tfour\n":                      "",
		"\t\tone\n\ttwo\n\n\tfour\n":                            "",
		"\tone\n\ttwo\n\nmore\n\tone\n\ttwo\n\n\tfour\n\tone\n": "",
	} {
		got, err := changes[0].apply(content)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q becomes %q, %v; want %q", content, got, err, want)
		}
	}
	if got, err := changes[1].apply("six\n"); got != "seven\n" || err != nil {
		t.Error(got, err)
	}
	for _, wrong := range []string{"", "text\n", "--- a/a.go\n+++ b/a.go\n"} {
		if changes, err := parse(wrong); err == nil {
			t.Errorf("%q is read as %v", wrong, changes)
		}
	}
}
