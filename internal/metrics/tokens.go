package metrics

import "github.com/prometheus/client_golang/prometheus"

// Tokens counts the service account tokens that were used.
type Tokens struct {
	// Valid are bound tokens, Stale those of them that should have been
	// replaced by a newer one.
	Valid, Stale prometheus.Counter
	// Legacy are tokens that are kept in secrets: Auto were made by
	// themselves, Manual by somebody.
	Legacy, Auto, Manual prometheus.Counter
	// Invalid were refused, because they had not been used for long.
	Invalid prometheus.Counter
}

// NewTokens returns counters that nobody sees.
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
