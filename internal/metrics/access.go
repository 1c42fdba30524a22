package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-io/coracle/internal/nativehistogram"
)

// Access counts authentication and authorization.
type Access struct {
	users        *prometheus.CounterVec
	other        prometheus.Counter // requests of users without a label of their own
	decisions    *prometheus.CounterVec
	expiration   prometheus.Histogram
	authenticate map[string]outcome
	authorize    map[string]outcome
}

// outcome counts the results of one kind, and their latency.
type outcome struct {
	count    prometheus.Counter
	duration prometheus.Observer
}

// Results of authentication and authorization.
const (
	Success   = "success"
	Failure   = "failure"
	Failed    = "error"
	Allowed   = "allowed"
	Denied    = "denied"
	NoOpinion = "no-opinion"
)

func newAccess(r *Registry) *Access {
	durations := prometheus.ExponentialBuckets(0.001, 2, 15)
	outcomes := func(count *prometheus.CounterVec, duration *prometheus.HistogramVec, results ...string) map[string]outcome {
		m := map[string]outcome{}
		for _, result := range results {
			m[result] = outcome{count.WithLabelValues(result), duration.WithLabelValues(result)}
		}
		return m
	}
	a := &Access{
		users:     r.counter("authenticated_user_requests", alpha+"Counter of authenticated requests broken out by username.", "username"),
		decisions: r.counter("apiserver_authorization_decisions_total", alpha+"Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.", "type", "name", "decision"),
		expiration: nativehistogram.New(prometheus.HistogramOpts{
			Name: "apiserver_client_certificate_expiration_seconds",
			Help: alpha + "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
			Buckets: []float64{0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000,
				7776000, 15552000, 31104000},
		}),
		authenticate: outcomes(
			r.counter("authentication_attempts", alpha+"Counter of authenticated attempts.", "result"),
			r.histogram("authentication_duration_seconds", alpha+"Authentication duration in seconds broken out by result.", durations, "result"),
			Success, Failure, Failed),
		authorize: outcomes(
			r.counter("authorization_attempts_total", alpha+"Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.", "result"),
			r.histogram("authorization_duration_seconds", alpha+"Authorization duration in seconds broken out by result.", durations, "result"),
			Allowed, Denied, NoOpinion, Failed),
	}
	r.MustRegister(a.expiration)
	a.other = a.users.WithLabelValues("other")
	return a
}

// Authenticated counts an attempt to authenticate. user is the recognized user.
func (a *Access) Authenticated(result, user string, took time.Duration) {
	o := a.authenticate[result]
	o.count.Inc()
	o.duration.Observe(took.Seconds())
	if result == Success {
		a.user(user)
	}
}

// user counts a request of a user, under one of a few names.
func (a *Access) user(name string) {
	switch {
	case name == "admin" || name == "client" || name == "kube_proxy" || name == "kubelet" || name == "system:serviceaccount:kube-system:default":
		a.users.WithLabelValues(name).Inc()
	case strings.IndexByte(name, '@') >= 0:
		a.users.WithLabelValues("email_id").Inc()
	default:
		a.other.Inc()
	}
}

// Authorized counts an authorization decision.
func (a *Access) Authorized(result string, took time.Duration) {
	o := a.authorize[result]
	o.count.Inc()
	o.duration.Observe(took.Seconds())
}

// Decisions returns the counters of an authorizer's decisions.
func (a *Access) Decisions(kind, name string) (allowed, denied prometheus.Counter) {
	return a.decisions.WithLabelValues(kind, name, Allowed), a.decisions.WithLabelValues(kind, name, Denied)
}

// Certificate records for how long the client certificate of a request remains
// valid.
func (a *Access) Certificate(left time.Duration) { a.expiration.Observe(left.Seconds()) }
