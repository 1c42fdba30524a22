package component

import (
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/flagvalue"
)

// leaderElectionFields are the flags that set a LeaderElectionConfiguration. path
// is where a configuration has it, with a dot at its end; it is empty for a
// LeaderElectionConfiguration itself.
func leaderElectionFields(path string) []fieldFlag {
	return []fieldFlag{
		{"leader-elect", path + "leaderElect", boolField, "run only while holding the leader's lease, so that one of several replicas is active"},
		{"leader-elect-lease-duration", path + "leaseDuration", durationField, "how long other candidates wait after the last renewal before they take over the lease"},
		{"leader-elect-renew-deadline", path + "renewDeadline", durationField, "how long the leader tries to renew its lease before it gives up; less than --leader-elect-lease-duration"},
		{"leader-elect-retry-period", path + "retryPeriod", durationField, "time between attempts to acquire or renew the lease"},
		{"leader-elect-resource-lock", path + "resourceLock", textField, "resource of the lock; only leases"},
		{"leader-elect-resource-name", path + "resourceName", textField, "name of the Lease"},
		{"leader-elect-resource-namespace", path + "resourceNamespace", textField, "namespace of the Lease"},
	}
}

// leaderElectionKinds says what the values of those flags are.
func leaderElectionKinds(fs *pflag.FlagSet) {
	flagvalue.Is(fs, flagvalue.Name, "leader-elect-resource-name", "leader-elect-resource-namespace")
	flagvalue.OneOf(fs, "leader-elect-resource-lock", "leases")
}
