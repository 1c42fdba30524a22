package scheduler

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

// At level 10 the log has the scores of each plugin and their sum for each node,
// and what happens to a pod before.
func TestLogOfDecision(t *testing.T) {
	var mu sync.Mutex // guards lines
	var lines []string
	simulate(t, func(s *simulation) {
		s.logger = funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}, funcr.Options{Verbosity: 10})
	}, func(s *simulation) {
		s.add(pod("p", requests("1", "1Gi")))
		advance(time.Second)
		node := s.get("p").Spec.NodeName
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{
			`"level"=5 "msg"="Pod moved to an internal scheduling queue" "pod"={"name"="p" "namespace"="default"} "event"="UnscheduledPodAdd" "queue"="active"`,
			`"level"=3 "msg"="Attempting to schedule pod" "pod"={"name"="p" "namespace"="default"}`,
			`"level"=10 "msg"="Plugin scored node for pod" "pod"={"name"="p" "namespace"="default"} "plugin"="TaintToleration" "node"="a" "score"=300`,
			`"level"=10 "msg"="Plugin scored node for pod" "pod"={"name"="p" "namespace"="default"} "plugin"="NodeResourcesFit" "node"="b" "score"=`,
			`"level"=10 "msg"="Calculated node's final score for pod" "pod"={"name"="p" "namespace"="default"} "node"="` + node + `" "score"=`,
		} {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, want) }) {
				t.Errorf("no line has %s\n%s", want, strings.Join(lines, "\n"))
			}
		}
	}, node("a"), node("b"))
}
