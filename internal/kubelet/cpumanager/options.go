package cpumanager

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/kubelet/spec"
)

// The policies.
const (
	None   = "none"
	Static = spec.StaticCPUs
)

// Options are the options of the static policy.
type Options struct {
	FullPCPUsOnly            bool
	DistributeAcrossNUMA     bool
	AlignBySocket            bool
	DistributeAcrossCores    bool
	StrictReservation        bool
	PreferAlignByUncoreCache bool
}

// ParseOptions reads cpuManagerPolicyOptions for a policy.
func ParseOptions(policy string, values map[string]string, gates *feature.Set) (Options, error) {
	var o Options
	if policy == None && len(values) > 0 {
		return o, fmt.Errorf("None policy: received unsupported options=%v", values) //nolint:staticcheck // upstream's words
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		var field *bool
		gate, stage := feature.Gate(""), ""
		switch name {
		case "full-pcpus-only":
			field = &o.FullPCPUsOnly
		case "strict-cpu-reservation":
			field = &o.StrictReservation
		case "distribute-cpus-across-numa":
			field, gate, stage = &o.DistributeAcrossNUMA, feature.CPUManagerPolicyBetaOptions, "Beta"
		case "prefer-align-cpus-by-uncorecache":
			field, gate, stage = &o.PreferAlignByUncoreCache, feature.CPUManagerPolicyBetaOptions, "Beta"
		case "align-by-socket":
			field, gate, stage = &o.AlignBySocket, feature.CPUManagerPolicyAlphaOptions, "Alpha"
		case "distribute-cpus-across-cores":
			field, gate, stage = &o.DistributeAcrossCores, feature.CPUManagerPolicyAlphaOptions, "Alpha"
		default:
			return o, fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		}
		if gate != "" && !gates.Enabled(gate) {
			return o, fmt.Errorf("CPU Manager Policy %s-level Options not enabled, but option %q provided", stage, name)
		}
		on, err := strconv.ParseBool(values[name])
		if err != nil {
			return o, fmt.Errorf("bad value for option %q: %w", name, err)
		}
		*field = on
	}
	for _, pair := range []struct {
		one, other       bool
		oneName, another string
	}{
		{o.FullPCPUsOnly, o.DistributeAcrossCores, "full-pcpus-only", "distribute-cpus-across-cores"},
		{o.DistributeAcrossNUMA, o.DistributeAcrossCores, "distribute-cpus-across-numa", "distribute-cpus-across-cores"},
		{o.PreferAlignByUncoreCache, o.DistributeAcrossCores, "prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"},
		{o.PreferAlignByUncoreCache, o.DistributeAcrossNUMA, "prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"},
	} {
		if pair.one && pair.other {
			return o, fmt.Errorf("static policy options %s and %s can not be used at the same time", pair.oneName, pair.another)
		}
	}
	return o, nil
}
