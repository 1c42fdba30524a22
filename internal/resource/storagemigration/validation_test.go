package storagemigration

import (
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStatusOfAMigration checks which changes of a status are refused.
func TestStatusOfAMigration(t *testing.T) {
	status := func(version string, conditions ...storagemigrationv1.MigrationConditionType) storagemigrationv1.StorageVersionMigrationStatus {
		s := storagemigrationv1.StorageVersionMigrationStatus{ResourceVersion: version}
		for _, condition := range conditions {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: string(condition), Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Unix(1, 0)})
		}
		return s
	}
	const running, succeeded, failed = storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed
	for name, test := range map[string]struct {
		old, changed storagemigrationv1.StorageVersionMigrationStatus
		want         string // the field of the only error
	}{
		"conditions before a version":  {status(""), status("", running), ""},
		"a version":                    {status(""), status("12"), ""},
		"a version that is no number":  {status(""), status("x"), "status.resourceVersion"},
		"another version":              {status("12"), status("13"), "status.resourceVersion"},
		"ended and running":            {status("12", running), status("12", running, succeeded), ""},
		"ended in both ways":           {status("12"), status("12", succeeded, failed), "status.conditions"},
		"success that is taken back":   {status("12", succeeded), status("12", running), "status.conditions"},
		"a failure that is taken back": {status("12", failed), status("12"), "status.conditions"},
		"a version that is taken back": {status("12"), status(""), "status.resourceVersion"},
		"nothing that has not changed": {status("12", failed), status("12", failed), ""},
	} {
		errs := validateMigrationStatus(nil, &storagemigrationv1.StorageVersionMigration{Status: test.changed}, &storagemigrationv1.StorageVersionMigration{Status: test.old})
		switch {
		case test.want == "" && len(errs) == 0:
		case len(errs) != 1 || errs[0].Field != test.want:
			t.Errorf("%s: %v, want an error of %q", name, errs, test.want)
		}
	}
}
