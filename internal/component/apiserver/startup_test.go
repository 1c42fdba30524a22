package apiserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/health"
)

// Each check of the start fails until its step is finished, and no longer.
func TestStartupChecks(t *testing.T) {
	filled := make(chan struct{})
	s := newStartup(filled)
	checks := s.checks(true)
	failing := func() []string {
		var names []string
		for _, c := range checks {
			if c.Run(t.Context()) != nil {
				names = append(names, strings.TrimPrefix(c.Name, "poststarthook/"))
			}
		}
		return names
	}
	left := failing()
	if len(left) != len(checks) {
		t.Errorf("before the start only these fail: %v", left)
	}
	for _, step := range []struct {
		name   string
		finish func()
		passes string
	}{
		{"the cache is filled", func() { close(filled) }, "start-apiserver-admission-initializer"},
		{"default objects are there", s.defaults.Finish, "bootstrap-controller"},
		{"requests are classified", s.classified.Finish, "priority-and-fairness-filter"},
		{"custom resources are served", s.defined.Finish, "crd-informer-synced"},
		{"addresses are repaired", s.repaired.Finish, "start-service-ip-repair-controllers"},
		{"group versions are registered", s.registered.Finish, "apiservice-openapi-controller"},
	} {
		step.finish()
		now := failing()
		if !slices.Contains(left, step.passes) || slices.Contains(now, step.passes) {
			t.Errorf("when %s, %s should begin to pass; failing before: %v, after: %v", step.name, step.passes, left, now)
		}
		left = now
	}
	if len(left) > 0 {
		t.Errorf("after the start these fail: %v", left)
	}
	if slices.ContainsFunc(s.checks(false), func(c health.Check) bool { return strings.Contains(c.Name, "fairness") }) {
		t.Error("there are checks of fairness where it is turned off")
	}
	for _, fair := range []bool{true, false} {
		if slices.ContainsFunc(s.checks(fair), func(c health.Check) bool { return c.Name == "poststarthook/max-in-flight-filter" }) == fair {
			t.Errorf("with fairness %t, the check of the limits without it is wrong", fair)
		}
	}
}
