package apiserver

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/compatibility"
)

// RequestFlags are the API server's flags about how requests come in and how
// long they last.
type RequestFlags struct {
	MinTimeout    int // seconds
	MaxStreams    int // 0 is the server's own choice
	ShutdownDelay time.Duration
	LivezGrace    time.Duration
	Origins       []string // patterns
	HSTS          []string
}

func newRequestFlags() RequestFlags { return RequestFlags{MinTimeout: 1800} }

func (f *RequestFlags) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&f.MinTimeout, "min-request-timeout", f.MinTimeout, "seconds that a watch without a timeout of its own lasts at least; it lasts at most twice as long")
	fs.IntVar(&f.MaxStreams, "http2-max-streams-per-connection", f.MaxStreams, "most requests at a time on an HTTP/2 connection; 0 is 250")
	fs.DurationVar(&f.ShutdownDelay, "shutdown-delay-duration", f.ShutdownDelay, "how long requests are served as ever after the server was told to end, while /readyz fails")
	fs.DurationVar(&f.LivezGrace, "livez-grace-period", f.LivezGrace, "how long after the start /livez takes what is not finished of it for well")
	fs.StringSliceVar(&f.Origins, "cors-allowed-origins", f.Origins, "regular expressions of the origins whose scripts may ask (CORS), each with the start and the end of the host, as //example\\.com(:|$)")
	fs.StringSliceVar(&f.HSTS, "strict-transport-security-directives", f.HSTS, "directives of the header Strict-Transport-Security, as max-age=31536000,includeSubDomains,preload; the default is no header")
}

func (f *RequestFlags) validate() []error {
	var errs []error
	if f.MaxStreams < 0 {
		errs = append(errs, fmt.Errorf("--http2-max-streams-per-connection=%d: can not be negative", f.MaxStreams))
	}
	// Upstream's rules, for those flags that its options have in common with these.
	o := options.ServerRunOptions{
		MinRequestTimeout: f.MinTimeout, ShutdownDelayDuration: f.ShutdownDelay, LivezGracePeriod: f.LivezGrace, CorsAllowedOriginList: f.Origins, HSTSDirectives: f.HSTS,
		ComponentGlobalsRegistry: compatibility.NewComponentGlobalsRegistry(),
	}
	return append(errs, o.Validate()...)
}

// outlasting is a context that ends the given time after ctx, or when end is
// called. leave is called when ctx ends. Without a delay it is ctx.
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
