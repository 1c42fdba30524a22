package base

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/logging"
)

// Logging has upstream's flags of the log that can have an effect, except --v, which is
// the program's.
type Logging struct {
	Format string // text or json

	flushFrequency time.Duration // each line is written at once
}

// NewLogging returns upstream's defaults.
func NewLogging() Logging {
	return Logging{Format: string(logging.Text), flushFrequency: 5 * time.Second}
}

// AddFlags binds the flags to fs.
func (o *Logging) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Format, "logging-format", o.Format, "form of the log lines: text or json")
	flagvalue.OneOf(fs, "logging-format", string(logging.Text), string(logging.JSON))
	o.AddFlushFrequency(fs)
}

// AddFlushFrequency binds --log-flush-frequency alone, for a component whose
// --logging-format sets a field of its configuration.
func (o *Logging) AddFlushFrequency(fs *pflag.FlagSet) {
	fs.DurationVar(&o.flushFrequency, "log-flush-frequency", o.flushFrequency, "how long a log line may wait to be written; each is written at once")
}

// Validate returns all errors in the flags.
func (o *Logging) Validate() error {
	var errs []error
	if o.Format != string(logging.Text) && o.Format != string(logging.JSON) {
		errs = append(errs, fmt.Errorf("--logging-format=%s: want text or json", o.Format))
	}
	if o.flushFrequency <= 0 {
		errs = append(errs, fmt.Errorf("--log-flush-frequency=%s must be greater than 0", o.flushFrequency))
	}
	return errors.Join(errs...)
}

// Apply gives the log of a component its form. ctx has the component's logger.
func (o *Logging) Apply(ctx context.Context) { logging.SetFormat(ctx, logging.Format(o.Format)) }

// Why settings of the log have no effect.
const (
	byComponent = "has no effect: log levels are by component, see --v=COMPONENT=LEVEL"
	oneOutput   = "has no effect: all log lines go to standard error"
	noBuffer    = "has no effect: each log line is written at once"
)

// IgnoredLogFlags returns upstream's flags of the log that have no effect. They are
// accepted, so that command lines for upstream work.
func IgnoredLogFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.String("vmodule", "", byComponent)
	for _, format := range []logging.Format{logging.JSON, logging.Text} {
		fs.Bool(fmt.Sprintf("log-%s-split-stream", format), false, oneOutput)
		fs.String(fmt.Sprintf("log-%s-info-buffer-size", format), "0", noBuffer)
	}
	flagvalue.Is(fs, flagvalue.Quantity, "log-json-info-buffer-size", "log-text-info-buffer-size")
	return fs
}

// CheckLogging returns an error for the part of a component's configuration file that is
// about the log, if its format is none.
func CheckLogging(c *logsapi.LoggingConfiguration) error {
	switch logging.Format(c.Format) {
	case "", logging.Text, logging.JSON:
		return nil
	}
	return fmt.Errorf("logging.format (--logging-format) %q: want text or json", c.Format)
}

// ApplyLogging gives the log of a component the form and the level of its configuration
// file, except that a higher level of --v stays. ctx has the component's logger.
func ApplyLogging(ctx context.Context, c *logsapi.LoggingConfiguration) {
	logging.SetFormat(ctx, logging.Format(c.Format))
	logging.RaiseLevel(ctx, int(c.Verbosity))
}

// LoggingWarnings names what a component's configuration file says about the log and
// what has no effect.
func LoggingWarnings(c *logsapi.LoggingConfiguration) (warnings []string) {
	for _, setting := range []struct {
		name, why string
		given     bool
	}{
		{"logging.vmodule", byComponent, len(c.VModule) > 0},
		{"logging.options.json.splitStream", oneOutput, c.Options.JSON.SplitStream},
		{"logging.options.text.splitStream", oneOutput, c.Options.Text.SplitStream},
		{"logging.options.json.infoBufferSize", noBuffer, !c.Options.JSON.InfoBufferSize.IsZero()},
		{"logging.options.text.infoBufferSize", noBuffer, !c.Options.Text.InfoBufferSize.IsZero()},
	} {
		if setting.given {
			warnings = append(warnings, setting.name+" "+setting.why)
		}
	}
	return warnings
}
