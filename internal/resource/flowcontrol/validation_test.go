package flowcontrol

import (
	"math"
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
		{"accounts for a group", flowcontrolv1.Subject{Kind: "Group", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "ns", Name: "*"}}, []string{
			"s.serviceAccount: Forbidden: serviceAccount is forbidden when subject kind is not 'ServiceAccount'",
			"s.group: Required value: group is required when subject kind is 'Group'",
		}},
		{"others for an account", flowcontrolv1.Subject{Kind: "ServiceAccount", User: user, Group: group}, []string{
			"s.serviceAccount: Required value: serviceAccount is required when subject kind is 'ServiceAccount'",
			"s.user: Forbidden: user is forbidden when subject kind is not 'User'",
			"s.group: Forbidden: group is forbidden when subject kind is not 'Group'",
		}},
		{"an account without a namespace", flowcontrolv1.Subject{Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Name: "a"}}, []string{
			"s.serviceAccount.namespace: Required value: must specify namespace for service account",
		}},
		{"nothing", flowcontrolv1.Subject{}, []string{`s.kind: Unsupported value: "": supported values: "Group", "ServiceAccount", "User"`}},
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

// limited returns a level that rejects what is over its limits, after a change.
func limited(change func(*flowcontrolv1.LimitedPriorityLevelConfiguration)) flowcontrolv1.PriorityLevelConfigurationSpec {
	l := &flowcontrolv1.LimitedPriorityLevelConfiguration{
		NominalConcurrencyShares: ptr.To[int32](42), LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
	}
	change(l)
	return flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: l}
}

// levelCase is a priority level that is not mandatory, and what is wrong with it.
type levelCase struct {
	spec        flowcontrolv1.PriorityLevelConfigurationSpec
	annotations map[string]string
	want        []string
}

func (c *levelCase) check(t *testing.T, name string) {
	t.Helper()
	level := &flowcontrolv1.PriorityLevelConfiguration{Spec: c.spec}
	level.Name, level.Annotations = "mine", c.annotations
	var got []string
	for _, err := range validatePriorityLevel(nil, level) {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(c.want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestLevels has the rules of priority levels that are not mandatory.
func TestLevels(t *testing.T) {
	const queue = flowcontrolv1.LimitResponseTypeQueue
	queuing := func(queues, handSize int32) flowcontrolv1.PriorityLevelConfigurationSpec {
		return limited(func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
			l.LimitResponse = flowcontrolv1.LimitResponse{Type: queue, Queuing: &flowcontrolv1.QueuingConfiguration{
				Queues: queues, HandSize: handSize, QueueLengthLimit: 100,
			}}
		})
	}
	shares := func(n int32) flowcontrolv1.PriorityLevelConfigurationSpec {
		return limited(func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) { l.NominalConcurrencyShares = &n })
	}
	lendable := func(n int32) flowcontrolv1.PriorityLevelConfigurationSpec {
		return limited(func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) { l.LendablePercent = &n })
	}
	borrowing := func(n int32) flowcontrolv1.PriorityLevelConfigurationSpec {
		return limited(func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) { l.BorrowingLimitPercent = &n })
	}
	const response = "spec.limited.limitResponse."
	for name, c := range map[string]levelCase{
		"rejects":     {spec: limited(func(*flowcontrolv1.LimitedPriorityLevelConfiguration) {})},
		"queues":      {spec: queuing(512, 4)},
		"most queues": {spec: queuing(maxQueues, 2)},
		"annotation of v1beta3": {
			spec: shares(0), annotations: map[string]string{preserveZeroShares: ""},
			want: []string{"metadata.annotations: Forbidden: annotation 'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden"},
		},
		"too large a hand": {spec: queuing(512, 8), want: []string{
			response + "queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 should not be greater than 60",
		}},
		"too large a hand of few queues": {spec: queuing(128, 10), want: []string{
			response + "queuing.handSize: Invalid value: 10: required entropy bits of deckSize 128 and handSize 10 should not be greater than 60",
		}},
		"too many queues": {spec: queuing(math.MaxInt32, 3), want: []string{
			response + "queuing.queues: Invalid value: 2147483647: must not be greater than 10000000",
			response + "queuing.handSize: Invalid value: 3: required entropy bits of deckSize 2147483647 and handSize 3 should not be greater than 60",
		}},
		"more than all queues": {spec: queuing(7, 8), want: []string{response + "queuing.handSize: Invalid value: 8: should not be greater than queues (7)"}},
		"no shares":            {spec: shares(0)},
		"negative shares":      {spec: shares(-1), want: []string{"spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer"}},
		"lends nothing":        {spec: lendable(0)},
		"lends all":            {spec: lendable(100)},
		"lends more than all":  {spec: lendable(101), want: []string{"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"}},
		"lends less":           {spec: lendable(-1), want: []string{"spec.limited.lendablePercent: Invalid value: -1: must be between 0 and 100, inclusive"}},
		"borrows nothing":      {spec: borrowing(0)},
		"borrows twice":        {spec: borrowing(200)},
		"borrows less":         {spec: borrowing(-1), want: []string{"spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer"}},
	} {
		c.check(t, name)
	}
}

// The types of a level and of its response call for parts, and forbid others.
func TestPartsOfLevels(t *testing.T) {
	const response = "spec.limited.limitResponse."
	for name, c := range map[string]levelCase{
		"no limits": {
			spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{}},
			want: []string{"spec.exempt: Forbidden", "spec.limited: Required value"},
		},
		"queues without a configuration": {
			spec: limited(func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
				l.LimitResponse.Type = flowcontrolv1.LimitResponseTypeQueue
			}),
			want: []string{response + "queuing: Required value"},
		},
		"rejects with queues": {
			spec: limited(func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
				l.LimitResponse.Queuing = &flowcontrolv1.QueuingConfiguration{Queues: 512, HandSize: 4, QueueLengthLimit: 100}
			}),
			want: []string{response + "queuing: Forbidden"},
		},
		"no type": {
			spec: flowcontrolv1.PriorityLevelConfigurationSpec{Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{}},
			want: []string{"spec.exempt: Forbidden", "spec.type: Required value"},
		},
		"another type": {
			spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: "Other", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{}},
			want: []string{
				`spec.type: Unsupported value: "Other": supported values: "Exempt", "Limited"`,
				"spec.limited: Forbidden", response + "type: Required value",
			},
		},
		"no response": {
			spec: limited(func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
				l.LendablePercent, l.LimitResponse = ptr.To[int32](101), flowcontrolv1.LimitResponse{Queuing: &flowcontrolv1.QueuingConfiguration{}}
			}),
			want: []string{
				"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
				response + "queuing: Forbidden", response + "type: Required value",
			},
		},
	} {
		c.check(t, name)
	}
}

func TestNonResourceURLs(t *testing.T) {
	for _, url := range []string{"/", "/healthz", "/apis/", "/healthz/*", "/*"} {
		if problem := urlProblem(url); problem != "" {
			t.Errorf("%q: %s", url, problem)
		}
	}
	for _, url := range []string{"", "healthz", "//", "/////", "/healthz/*/etcd", "/healthz/a b", "/health*", "/health*/etcd", "/*/*"} {
		if urlProblem(url) == "" {
			t.Errorf("%q has no error", url)
		}
	}
}
