package repotest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// TestHistogramsHaveBothForms checks that all histograms of Kubernetes' components are
// native ones, too (KEP-5808). CoreDNS has classic ones, and so has the ingress.
func TestHistogramsHaveBothForms(t *testing.T) {
	exempt := []string{"internal/nativehistogram/", "internal/dns/", "internal/ingress/"}
	for path, f := range everySource(t) {
		if slices.ContainsFunc(exempt, func(dir string) bool { return strings.HasPrefix(path, dir) }) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if called, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(called.Sel.Name, "NewHistogram") {
				if of, ok := called.X.(*ast.Ident); ok && of.Name == "prometheus" {
					t.Errorf("%s:%d uses prometheus.%s: make histograms with internal/nativehistogram, so that Prometheus can read them in both forms", path, f.tokens.Position(n.Pos()).Line, called.Sel.Name)
				}
			}
			return true
		})
	}
}
