// Package all lists the scheduler's plugins.
package all

import (
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/imagelocality"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/interpodaffinity"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodeaffinity"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodename"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodeports"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/noderesources"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/nodeunschedulable"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/podtopologyspread"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/tainttoleration"
)

// WeightedScore is a score plugin with its weight.
type WeightedScore struct {
	framework.Score
	Weight int64
}

// Filters returns the default filters, cheapest and most decisive first.
func Filters() []framework.Filter {
	return []framework.Filter{
		nodeunschedulable.Plugin{},
		nodename.Plugin{},
		tainttoleration.Plugin{},
		nodeaffinity.Plugin{},
		nodeports.Plugin{},
		noderesources.Fit{},
		podtopologyspread.Plugin{},
		interpodaffinity.Plugin{},
	}
}

// Scores returns the default scores with upstream's weights.
func Scores() []WeightedScore {
	return []WeightedScore{
		{tainttoleration.Plugin{}, 3},
		{nodeaffinity.Plugin{}, 2},
		{podtopologyspread.Plugin{}, 2},
		{interpodaffinity.Plugin{}, 2},
		{noderesources.Fit{}, 1},
		{noderesources.Balanced{}, 1},
		{imagelocality.Plugin{}, 1},
	}
}
