package networkpolicy

import "github.com/coracle-io/coracle/internal/applyloop"

func newMetrics() *applyloop.Metrics {
	return applyloop.NewMetrics(applyloop.Names{
		Duration: "coracle_network_policy_sync_duration_seconds", DurationHelp: "Time to compute the rules of network policies and to apply them",
		LastApplied: "coracle_network_policy_sync_last_timestamp_seconds", LastAppliedHelp: "The last time the rules of network policies were applied",
		Failures: "coracle_network_policy_sync_failures_total", FailuresHelp: "Attempts to apply the rules of network policies that failed",
	})
}
