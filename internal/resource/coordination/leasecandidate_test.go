package coordination

import (
	"strings"
	"testing"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestLeaseCandidates(t *testing.T) {
	valid := coordinationv1beta1.LeaseCandidateSpec{LeaseName: "l", BinaryVersion: "1.37.0", EmulationVersion: "1.36.0", Strategy: "OldestEmulationVersion"}
	for _, c := range []struct {
		change func(*coordinationv1beta1.LeaseCandidateSpec)
		wrong  string // the fields with errors
	}{
		{func(*coordinationv1beta1.LeaseCandidateSpec) {}, ""},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) {
			s.Strategy, s.EmulationVersion = "example.com/mine", ""
		}, ""},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.Strategy = "mine" }, "strategy"},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.Strategy = "" }, "strategy"},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.EmulationVersion = "" }, "emulationVersion"},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.EmulationVersion = "1.38.0" }, "binaryVersion"},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.BinaryVersion = "v1" }, "binaryVersion binaryVersion"},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.BinaryVersion = "" }, "binaryVersion"},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.EmulationVersion = "v1" }, "emulationVersion emulationVersion"},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.LeaseName = "" }, "leaseName"},
		{func(s *coordinationv1beta1.LeaseCandidateSpec) { s.LeaseName = "A_" }, ""},
	} {
		spec := valid
		c.change(&spec)
		var fields []string
		for _, err := range validateCandidate(field.NewPath("spec"), &spec) {
			fields = append(fields, strings.TrimPrefix(err.Field, "spec."))
		}
		if got := strings.Join(fields, " "); got != c.wrong {
			t.Errorf("%+v: %q, want %q", spec, got, c.wrong)
		}
	}
}

// TestNamesOfCandidates checks that a candidate can have the identity of a
// process as its name: the host, an underscore and a UUID.
func TestNamesOfCandidates(t *testing.T) {
	validate := LeaseCandidates().Strategy.ValidateName
	if problems := validate("host_3e4a2d5c-7b2f-4d3a-9d1e-1f2a3b4c5d6e", false); len(problems) > 0 {
		t.Errorf("an identity is refused: %v", problems)
	}
	if problems := validate("a/b", false); len(problems) == 0 {
		t.Error("a name with a slash is allowed")
	}
}
