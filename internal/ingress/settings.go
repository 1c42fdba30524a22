package ingress

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coracle-io/coracle/internal/amount"
	"github.com/coracle-io/coracle/internal/ingress/table"
)

// Annotations of an Ingress, which apply to all of its routes.
const (
	// RedirectAnnotation is true if requests without TLS get a redirection to HTTPS.
	RedirectAnnotation = "coracle.io/https-redirect"
	// MaxBodyAnnotation bounds the body of a request: a quantity such as 10Mi, 0 for
	// no bound, which is the default.
	MaxBodyAnnotation = "coracle.io/max-body-size"
	// TimeoutAnnotation bounds the time from the end of a request to the headers of
	// its response: a duration such as 5m, 0 for no bound.
	TimeoutAnnotation = "coracle.io/response-timeout"
)

// defaultTimeout is the default of TimeoutAnnotation.
const defaultTimeout = time.Minute

// parseAnnotations returns a route with what the annotations of its Ingress say. A
// malformed one has its default, and is in the error.
func parseAnnotations(annotations map[string]string) (table.Route, error) {
	route := table.Route{AnswerTimeout: defaultTimeout}
	var errs []error
	parse := func(name, want string, set func(text string) bool) {
		if text, given := annotations[name]; given && !set(text) {
			errs = append(errs, fmt.Errorf("annotation %s: want %s", name, want))
		}
	}
	parse(RedirectAnnotation, "true or false", func(text string) bool {
		on, err := strconv.ParseBool(text)
		route.RedirectToHTTPS = on && err == nil
		return err == nil
	})
	parse(MaxBodyAnnotation, "a size such as 10Mi", func(text string) bool {
		q, err := amount.Parse(text)
		if err != nil || q.Sign() < 0 {
			return false
		}
		route.MaxBody = amount.Value(q)
		return true
	})
	parse(TimeoutAnnotation, "a duration such as 90s", func(text string) bool {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return false
		}
		route.AnswerTimeout = d
		return true
	})
	return route, errors.Join(errs...)
}
