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

// Logging has upstream's flags of the log, except --v, which is the program's.
type Logging struct {
	Format string // text or json

	flushFrequency time.Duration
	// What is refused: each line is written at once to one place, and has the level of
	// its component.
	vmodule                string
	jsonSplit, textSplit   bool
	jsonBuffer, textBuffer string
}

// NewLogging returns upstream's defaults.
func NewLogging() Logging {
	return Logging{Format: string(logging.Text), flushFrequency: 5 * time.Second, jsonBuffer: "0", textBuffer: "0"}
}

// Why flags and settings of the log are refused.
const (
	oneOutput   = "all log lines go to standard error"
	noBuffer    = "each log line is written at once"
	byComponent = "log levels are by component here: use --v=COMPONENT=LEVEL"
)

// AddFlags binds the flags to fs.
func (o *Logging) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Format, "logging-format", o.Format, "form of the log lines: text or json")
	flagvalue.OneOf(fs, "logging-format", string(logging.Text), string(logging.JSON))
	o.AddOtherFlags(fs)
}

// AddOtherFlags binds all flags but --logging-format, which sets a field of a
// configuration.
func (o *Logging) AddOtherFlags(fs *pflag.FlagSet) {
	const refused = "is refused: "
	fs.DurationVar(&o.flushFrequency, "log-flush-frequency", o.flushFrequency, "how long a log line may wait to be written; each is written at once")
	fs.StringVar(&o.vmodule, "vmodule", o.vmodule, refused+byComponent)
	fs.BoolVar(&o.jsonSplit, "log-json-split-stream", o.jsonSplit, refused+oneOutput)
	fs.BoolVar(&o.textSplit, "log-text-split-stream", o.textSplit, refused+oneOutput)
	fs.StringVar(&o.jsonBuffer, "log-json-info-buffer-size", o.jsonBuffer, refused+noBuffer)
	fs.StringVar(&o.textBuffer, "log-text-info-buffer-size", o.textBuffer, refused+noBuffer)
	flagvalue.Is(fs, flagvalue.Quantity, "log-json-info-buffer-size", "log-text-info-buffer-size")
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
	return errors.Join(append(errs, refuse([]refusal{
		{"--vmodule", byComponent, o.vmodule != ""},
		{"--log-json-split-stream", oneOutput, o.jsonSplit},
		{"--log-text-split-stream", oneOutput, o.textSplit},
		{"--log-json-info-buffer-size", noBuffer, o.jsonBuffer != "0"},
		{"--log-text-info-buffer-size", noBuffer, o.textBuffer != "0"},
	}))...)
}

// Apply gives the log of a component its form. ctx has the component's logger.
func (o *Logging) Apply(ctx context.Context) { logging.SetFormat(ctx, logging.Format(o.Format)) }

// CheckLogging returns all errors in the part of a component's configuration file that is
// about the log.
func CheckLogging(c *logsapi.LoggingConfiguration) error {
	var errs []error
	if c.Format != "" && c.Format != string(logging.Text) && c.Format != string(logging.JSON) {
		errs = append(errs, fmt.Errorf("logging.format (--logging-format) %q: want text or json", c.Format))
	}
	return errors.Join(append(errs, refuse([]refusal{
		{"logging.vmodule", byComponent, len(c.VModule) > 0},
		{"logging.options.json.splitStream", oneOutput, c.Options.JSON.SplitStream},
		{"logging.options.text.splitStream", oneOutput, c.Options.Text.SplitStream},
		{"logging.options.json.infoBufferSize", noBuffer, !c.Options.JSON.InfoBufferSize.IsZero()},
		{"logging.options.text.infoBufferSize", noBuffer, !c.Options.Text.InfoBufferSize.IsZero()},
	}))...)
}

// ApplyLogging gives the log of a component the form and the level of its configuration
// file, except that a higher level of --v stays. ctx has the component's logger.
func ApplyLogging(ctx context.Context, c *logsapi.LoggingConfiguration) {
	logging.SetFormat(ctx, logging.Format(c.Format))
	logging.RaiseLevel(ctx, int(c.Verbosity))
}

// refusal is a setting that is refused, and whether it is given.
type refusal struct {
	name, why string
	given     bool
}

// refuse returns errors for the settings that are given.
func refuse(all []refusal) error {
	var errs []error
	for _, r := range all {
		if r.given {
			errs = append(errs, fmt.Errorf("%s is not supported: %s", r.name, r.why))
		}
	}
	return errors.Join(errs...)
}
