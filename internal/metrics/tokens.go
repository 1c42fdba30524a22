package metrics

import "github.com/prometheus/client_golang/prometheus"

// Tokens counts service account tokens that were used.
type Tokens struct {
	// Valid are bound tokens, Stale those among them that should have been
	// refreshed.
	Valid, Stale prometheus.Counter
	// Legacy are tokens in secrets: Auto were generated, Manual were created by
	// users.
	Legacy, Auto, Manual prometheus.Counter
	// Invalid are rejected legacy tokens, because they had not been used for
	// long.
	Invalid prometheus.Counter
}

// NewTokens returns counters that are not registered.
func NewTokens() *Tokens {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "serviceaccount_" + name, Help: alpha + help})
	}
	return &Tokens{
		Valid:   counter("valid_tokens_total", "Cumulative valid projected service account tokens used"),
		Stale:   counter("stale_tokens_total", "Cumulative stale projected service account tokens used"),
		Legacy:  counter("legacy_tokens_total", "Cumulative legacy service account tokens used"),
		Auto:    counter("legacy_auto_token_uses_total", "Cumulative auto-generated legacy tokens used"),
		Manual:  counter("legacy_manual_token_uses_total", "Cumulative manually created legacy tokens used"),
		Invalid: counter("invalid_legacy_auto_token_uses_total", "Cumulative invalid auto-generated legacy tokens used"),
	}
}

func newTokens(r *Registry) *Tokens {
	t := NewTokens()
	r.MustRegister(t.Valid, t.Stale, t.Legacy, t.Auto, t.Manual, t.Invalid)
	return t
}
