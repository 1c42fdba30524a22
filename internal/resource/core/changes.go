package core

import (
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/coracle-io/coracle/internal/resource/rule"
)

// changes shows how is differs from was, as a unified diff of the form in
// which messages show objects.
func changes(was, is any) string {
	return diff.Diff(rule.Shown(was), rule.Shown(is))
}
