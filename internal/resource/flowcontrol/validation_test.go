package flowcontrol

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/utils/ptr"
)

// TestSubjects checks that a subject has exactly the field for its kind.
func TestSubjects(t *testing.T) {
	user, group := &flowcontrolv1.UserSubject{Name: "u"}, &flowcontrolv1.GroupSubject{Name: "g"}
	for _, test := range []struct {
		name    string
		subject flowcontrolv1.Subject
		want    []string
	}{
		{"user", flowcontrolv1.Subject{Kind: "User", User: user}, nil},
		{"a user without a name", flowcontrolv1.Subject{Kind: "User", User: &flowcontrolv1.UserSubject{}}, []string{"s.user.name: Required value"}},
		{"a group for a user", flowcontrolv1.Subject{Kind: "User", Group: group}, []string{
			"s.user: Required value: user is required when subject kind is 'User'",
			"s.group: Forbidden: group is forbidden when subject kind is not 'Group'",
		}},
		{"nobody", flowcontrolv1.Subject{Kind: "Nobody"}, []string{`s.kind: Unsupported value: "Nobody": supported values: "Group", "ServiceAccount", "User"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, err := range validateSubject(field.NewPath("s"), &test.subject) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMandatoryLevels checks which fields of the mandatory priority levels can
// change.
func TestMandatoryLevels(t *testing.T) {
	exempt := bootstrap.MandatoryPriorityLevelConfigurationExempt.DeepCopy()
	exempt.Spec.Exempt = &flowcontrolv1.ExemptPriorityLevelConfiguration{LendablePercent: ptr.To[int32](10)}
	if errs := validatePriorityLevel(nil, exempt); len(errs) > 0 {
		t.Errorf("exempt: %v", errs)
	}
	all := bootstrap.MandatoryPriorityLevelConfigurationCatchAll.DeepCopy()
	all.Spec.Limited.LendablePercent = ptr.To[int32](10)
	if errs := validatePriorityLevel(nil, all); len(errs) != 1 || errs[0].Detail != "spec of 'catch-all' must equal the fixed value" {
		t.Errorf("catch-all: %v", errs)
	}
	other := exempt.DeepCopy()
	other.Name = "other"
	if errs := validatePriorityLevel(nil, other); len(errs) != 1 || errs[0].Detail != "must be 'Exempt' if and only if `name` is 'exempt'" {
		t.Errorf("other: %v", errs)
	}
}
