package component

import (
	"reflect"
	"slices"

	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/component/base"
)

// schedulerFields are all flags that set the KubeSchedulerConfiguration, whether
// there is a file or not.
func schedulerFields() []fieldFlag {
	return slices.Concat([]fieldFlag{
		{"kubeconfig", "clientConnection.kubeconfig", textField, "kubeconfig file for the API server"},
		{"profiling", "enableProfiling", boolField, base.ProfilingUsage},
	}, leaderElectionFields("leaderElection."))
}

// merge merges the flags into what was read from the file: fields that the file
// leaves out get the defaults of their flags, and flags that were given take
// precedence.
func (s *Scheduler) merge(file *kubescheduler.KubeSchedulerConfiguration) error {
	own := s.Configuration.DeepCopy()
	for _, f := range schedulerFields() {
		if field := fieldAt(reflect.ValueOf(file), f.field); field.IsZero() {
			field.Set(fieldAt(reflect.ValueOf(own), f.field))
		}
	}
	return setGiven(file, s.fields)
}

// flagValues returns the values of all flags. Flags of configuration fields have the
// values of the merged configuration.
func (s *Scheduler) flagValues(merged *kubescheduler.KubeSchedulerConfiguration) base.FlagValues {
	effective := *s
	effective.Configuration = *merged
	return base.FlagValuesOf(effective.AddFlags)
}
