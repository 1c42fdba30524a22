package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// The log says, once, which static pods have priorities that do not help them.
func TestPriorityWarnings(t *testing.T) {
	for spec, want := range map[string]string{
		"": "",
		"priority: 2000001000, priorityClassName: system-node-critical,": "",
		"priorityClassName: system-node-critical,":                       "has non-nil PriorityClassName and nil Priority",
		"priority: 2000001000,":                                          "has Priority set without PriorityClassName",
		"priority: 0,":                                                   "has Priority set without PriorityClassName",
		"priority: 2000001000, priorityClassName: web,":                  "has non-standard values for Priority and PriorityClassName",
		"priority: 5, priorityClassName: system-node-critical,":          "has non-standard values for Priority and PriorityClassName",
	} {
		pods, err := decode(fmt.Appendf(nil, "{kind: Pod, metadata: {name: web}, spec: {%s containers: [{name: main, image: a}]}}", spec), folderName, "alpha")
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		delivered, updates := deliveredPods{}, make(chan Update, 1)
		for range 2 {
			delivered.update(klog.NewContext(t.Context(), log), folderName, pods, updates)
		}
		said := strings.Join(lines, "\n")
		if want == "" && said != "" || strings.Count(said, "Static Pod") != len(lines) || want != "" && (len(lines) != 1 || !strings.Contains(said, want) || !strings.Contains(said, "web-alpha")) {
			t.Errorf("%s: the log says %q, want %q", spec, said, want)
		}
	}
}
