package repotest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// clocks are the functions that read the time or wait, by package.
var clocks = map[string][]string{
	"time":   {"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer"},
	"metav1": {"Now", "NowMicro"},
}

// TestResourcesHaveNoClock checks that resources get the time passed in
// (resource.RequestContext.Now), so that their decisions can be tested and do not
// depend on the caller.
func TestResourcesHaveNoClock(t *testing.T) {
	for path, f := range everySource(t) {
		if !strings.HasPrefix(path, "internal/resource/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if called, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := called.X.(*ast.Ident); ok && slices.Contains(clocks[of.Name], called.Sel.Name) {
					t.Errorf("%s:%d uses %s.%s: resources are pure, and are told the time by their Request", path, f.tokens.Position(n.Pos()).Line, of.Name, called.Sel.Name)
				}
			}
			return true
		})
	}
}
