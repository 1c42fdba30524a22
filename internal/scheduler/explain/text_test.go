package explain

import (
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Text from tenants cannot control the terminal or add lines to the output.
func TestTextIsPrintable(t *testing.T) {
	const bad = "x\x1b[2J\u009b\u202e\n\tforged"
	obstacle := framework.Obstacle{Text: bad, Remedies: []string{bad, strings.Repeat(bad, 9)}}
	rejection := Rejection{Plugin: "P", Obstacles: []framework.Obstacle{obstacle, obstacle}}
	d := &Decision{Namespace: "default", Name: "p", Message: bad, Nodes: []NodeDecision{{Name: "a", Rejections: []Rejection{rejection}}}}
	whole := &Decision{Namespace: "default", Name: "q", Rejections: []Rejection{rejection}, Nodes: []NodeDecision{}}
	for name, text := range map[string]string{
		"decision about nodes":   text(d),
		"decision about the pod": text(whole),
		"dry run":                written(&DryRun{Pods: []*Decision{d, whole}, NotRead: []string{bad}}),
	} {
		if strings.ContainsAny(text, "\x1b\u009b\u202e\t") {
			t.Errorf("%s: control characters in %q", name, text)
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), "forged") {
				t.Errorf("%s: a tenant's line in\n%s", name, text)
				break
			}
		}
	}
}

func written(d *DryRun) string {
	var b strings.Builder
	d.WriteText(&b)
	return b.String()
}
