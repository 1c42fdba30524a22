package metricsserver

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A kubelet whose runtime does not answer says so, and not that nothing is used.
func TestAnswerOfAKubeletThatFailed(t *testing.T) {
	for text, fails := range map[string]bool{
		"resource_scrape_error 1\n": true,
		"# TYPE resource_scrape_error gauge\nresource_scrape_error 0\nnode_memory_working_set_bytes 5\n": false,
		"node_memory_working_set_bytes 5\n": false,
	} {
		got, err := read(strings.NewReader(text), time.Unix(1_800_000_000, 0), func(types.NamespacedName, string) bool { return true })
		if (err != nil) != fails {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
