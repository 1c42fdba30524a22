package component

import (
	"testing"

	"github.com/coracle-io/coracle/internal/component/base"
)

// A flag that is given takes precedence over the file, and leaves what the file
// says about the other fields.
func TestSchedulerFields(t *testing.T) {
	const file = schedulerHead + "clientConnection: {kubeconfig: /file}\nenableProfiling: false\nleaderElection: {leaderElect: false, leaseDuration: 61s, renewDeadline: 51s, retryPeriod: 11s, resourceLock: files, resourceName: file, resourceNamespace: file}\n"
	inFile := base.FlagValues{
		"kubeconfig": "/file", "profiling": "false", "leader-elect": "false", "leader-elect-lease-duration": "1m1s", "leader-elect-renew-deadline": "51s",
		"leader-elect-retry-period": "11s", "leader-elect-resource-lock": "files", "leader-elect-resource-name": "file", "leader-elect-resource-namespace": "file",
	}
	given := base.FlagValues{
		"kubeconfig": "/flag", "profiling": "true", "leader-elect": "true", "leader-elect-lease-duration": "1m2s", "leader-elect-renew-deadline": "52s",
		"leader-elect-retry-period": "12s", "leader-elect-resource-lock": "leases", "leader-elect-resource-name": "flag", "leader-elect-resource-namespace": "flag",
	}
	for _, f := range schedulerFields() {
		s := schedulerWith(t, "--config=DIR/config --"+f.name+"="+given[f.name], map[string]string{"config": file})
		loaded, err := s.load()
		if err != nil {
			t.Fatalf("--%s: %v", f.name, err)
		}
		effective := s.flagValues(loaded.file)
		for name := range inFile {
			want := inFile[name]
			if name == f.name {
				want = given[name]
			}
			if effective[name] != want {
				t.Errorf("--%s: the configuration has %s=%s, want %s", f.name, name, effective[name], want)
			}
		}
	}
	if named, want := len(schedulerFields()), len(inFile); named != want {
		t.Errorf("%d fields have flags, this test has %d", named, want)
	}
}
