package profile

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// scoring is a score plugin whose score is out of range, and that fails at one of its
// extension points.
type scoring struct {
	failsAt string
	status  *framework.Status
}

func (s scoring) at(point string) *framework.Status {
	if point != s.failsAt {
		return nil
	}
	return s.status
}

func (scoring) Name() string { return "Scoring" }

func (s scoring) PreScore(context.Context, *framework.CycleState, *framework.PodInfo, *framework.Snapshot, []*framework.NodeInfo) *framework.Status {
	return s.at("PreScore")
}

func (s scoring) Score(context.Context, *framework.CycleState, *framework.PodInfo, *framework.NodeInfo) (int64, *framework.Status) {
	return 101, s.at("Score")
}

func (s scoring) NormalizeScore(context.Context, *framework.CycleState, *framework.PodInfo, []int64) *framework.Status {
	return s.at("NormalizeScore")
}

// An error says which plugin failed to score, with and without shared results. A plugin
// that rejects a pod instead has failed, too.
func TestScoringErrorsNameThePlugin(t *testing.T) {
	h, node := &framework.Handle{}, framework.NewNodeInfo("n")
	node.Generation = 1
	statuses := []*framework.Status{framework.AsStatus("Scoring", errors.New("out of order")), framework.NewStatus(framework.Unschedulable, "Scoring", "out of order")}
	for point, want := range map[string]string{
		"PreScore":       `running PreScore plugin "Scoring": out of order`,
		"Score":          `running Score plugins: plugin "Scoring" failed with: out of order`,
		"NormalizeScore": `running Normalize on Score plugins: plugin "Scoring" failed with: out of order`,
		"none":           `applying score defaultWeights on Score plugins: plugin "Scoring" returns an invalid score 101, it should in the range of [0, 100] after normalizing`,
	} {
		for _, status := range statuses {
			for _, shared := range []*sharedResults{nil, {signed: 1, ratings: make([]rating, 1), raw: make([]int64, 1), stride: 1}} {
				plugin := scoring{point, status}
				p := &Profile{
					cycles: framework.NewStateKey[*cycle](h), sharing: &sharing{scores: []int{0}, raw: []int{0}}, samples: samples{scored: make([]int, 1)},
					points: points{preScore: []framework.PreScorePlugin{plugin}, score: []weightedScore{{plugin, plugin, 1}}},
				}
				state := framework.NewCycleState(h)
				p.cycles.Put(state, &cycle{shared: shared})
				_, s := p.RunScorePlugins(t.Context(), state, framework.NewPodInfo(&v1.Pod{}), nil, []*framework.NodeInfo{node})
				if s.Code() != framework.Error || s.Message() != want {
					t.Errorf("%v %q, want %q", s.Code(), s.Message(), want)
				}
			}
		}
	}
}
