package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/compatibility"

	"github.com/coracle-io/coracle/internal/apiserver"
)

// RequestOptions say how HTTP is spoken, how many requests are served at a time,
// and how long.
type RequestOptions struct {
	HTTP          apiserver.HTTPConfig
	Limits        apiserver.LimitConfig
	ShutdownDelay time.Duration
	LivezGrace    time.Duration
}

func newRequestOptions() RequestOptions {
	return RequestOptions{Limits: apiserver.DefaultLimits()}
}

func (o *RequestOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Limits.PriorityAndFairness, "enable-priority-and-fairness", o.Limits.PriorityAndFairness, "divide the sum of --max-requests-inflight and --max-mutating-requests-inflight by flow schemas and priority levels")
	fs.IntVar(&o.Limits.MaxInFlight, "max-requests-inflight", o.Limits.MaxInFlight, "maximum number of concurrent read-only requests; without priority and fairness, 0 is no limit")
	fs.IntVar(&o.Limits.MaxMutatingInFlight, "max-mutating-requests-inflight", o.Limits.MaxMutatingInFlight, "maximum number of concurrent mutating requests; without priority and fairness, 0 is no limit")
	fs.DurationVar(&o.Limits.RequestTimeout, "request-timeout", o.Limits.RequestTimeout, "how long a request other than a watch may take")
	fs.Float64Var(&o.HTTP.GoawayChance, "goaway-chance", o.HTTP.GoawayChance, "share of HTTP/2 requests after which clients are asked to reconnect, perhaps to another server behind a load balancer; from 0, which is none, to 0.02")
	fs.IntVar(&o.Limits.MinRequestTimeout, "min-request-timeout", o.Limits.MinRequestTimeout, "seconds that a watch without a timeout of its own lasts at least; it lasts at most twice as long; 0 is no limit")
	fs.IntVar(&o.HTTP.MaxStreamsPerConnection, "http2-max-streams-per-connection", o.HTTP.MaxStreamsPerConnection, "maximum number of concurrent requests on an HTTP/2 connection; 0 is 250")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay, "how long requests are still served after the server begins to shut down, while /readyz fails")
	fs.DurationVar(&o.LivezGrace, "livez-grace-period", o.LivezGrace, "how long after the start /livez reports unfinished start-up checks as passed")
	fs.StringSliceVar(&o.HTTP.AllowedOrigins, "cors-allowed-origins", o.HTTP.AllowedOrigins, "regular expressions of allowed CORS origins, each with the start and the end of the host, such as //example\\.com(:|$)")
	fs.StringSliceVar(&o.HTTP.StrictTransportSecurity, "strict-transport-security-directives", o.HTTP.StrictTransportSecurity, "directives of the header Strict-Transport-Security, such as max-age=31536000,includeSubDomains,preload; the default is no header")
}

func (o *RequestOptions) validate() []error {
	errs := o.validateInFlight()
	if o.HTTP.GoawayChance < 0 || o.HTTP.GoawayChance > 0.02 {
		errs = append(errs, errors.New("--goaway-chance can not be less than 0 or greater than 0.02"))
	}
	if o.Limits.RequestTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--request-timeout=%s: want more than 0", o.Limits.RequestTimeout))
	}
	if o.HTTP.MaxStreamsPerConnection < 0 {
		errs = append(errs, fmt.Errorf("--http2-max-streams-per-connection=%d: can not be negative", o.HTTP.MaxStreamsPerConnection))
	}
	// Upstream's rules, for those flags that its options have in common with these.
	upstream := options.ServerRunOptions{
		MinRequestTimeout: o.Limits.MinRequestTimeout, ShutdownDelayDuration: o.ShutdownDelay, LivezGracePeriod: o.LivezGrace, CorsAllowedOriginList: o.HTTP.AllowedOrigins, HSTSDirectives: o.HTTP.StrictTransportSecurity,
		ComponentGlobalsRegistry: compatibility.NewComponentGlobalsRegistry(),
	}
	return append(errs, upstream.Validate()...)
}

// validateInFlight validates the bounds of requests in flight.
func (o *RequestOptions) validateInFlight() (errs []error) {
	if o.Limits.MaxInFlight < 0 {
		errs = append(errs, fmt.Errorf("--max-requests-inflight=%d: want 0 or more", o.Limits.MaxInFlight))
	}
	if o.Limits.MaxMutatingInFlight < 0 {
		errs = append(errs, fmt.Errorf("--max-mutating-requests-inflight=%d: want 0 or more", o.Limits.MaxMutatingInFlight))
	}
	if len(errs) == 0 && o.Limits.PriorityAndFairness && o.Limits.MaxInFlight+o.Limits.MaxMutatingInFlight == 0 {
		errs = append(errs, fmt.Errorf("--max-requests-inflight and --max-mutating-requests-inflight are both 0, which leaves --enable-priority-and-fairness nothing to divide: give one of them"))
	}
	return errs
}

// outlasting returns a context that ends the given delay after ctx, or when end is
// called. It calls leave when ctx ends. Without a delay the context is ctx.
func outlasting(ctx context.Context, delay time.Duration, leave func()) (lasting context.Context, end context.CancelFunc) {
	if delay <= 0 {
		return context.WithCancel(ctx)
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		leave()
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-lasting.Done():
		}
	})
	return lasting, func() {
		stop()
		cancel()
	}
}
