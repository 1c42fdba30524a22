package base

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/logging"
)

// A flag of the log has its effect or is refused.
func TestLoggingFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":                      "",
		"--logging-format=text": "",
		"--logging-format=json --log-flush-frequency=1s --log-json-info-buffer-size=0": "",
		"--logging-format=xml":                "--logging-format=xml: want text or json",
		"--log-flush-frequency=0s":            "--log-flush-frequency=0s must be greater than 0",
		"--vmodule=a=2":                       "--vmodule is not supported: log levels are by component here: use --v=COMPONENT=LEVEL",
		"--log-json-split-stream":             "--log-json-split-stream is not supported",
		"--log-text-split-stream=true":        "--log-text-split-stream is not supported",
		"--log-json-info-buffer-size=1Ki":     "--log-json-info-buffer-size is not supported",
		"--log-text-info-buffer-size=1000000": "--log-text-info-buffer-size is not supported",
	} {
		o, fs := NewLogging(), pflag.NewFlagSet("component", pflag.ContinueOnError)
		o.AddFlags(fs)
		if err := fs.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		err := o.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
		if err != nil {
			continue
		}
		var out bytes.Buffer
		ctx := logging.New(&out, logging.Levels{}).Context(t.Context(), "scheduler")
		o.Apply(ctx)
		klog.FromContext(ctx).Info("line")
		if isJSON := strings.HasPrefix(out.String(), "{"); isJSON != (o.Format == "json") {
			t.Errorf("%s: the line is %s", line, out.String())
		}
	}
}

// The log of a component is as its configuration file says.
func TestApplyLogging(t *testing.T) {
	var out bytes.Buffer
	ctx := logging.New(&out, logging.Levels{}).Context(t.Context(), "kubelet")
	ApplyLogging(ctx, &logsapi.LoggingConfiguration{Format: "json", Verbosity: 2})
	klog.FromContext(ctx).V(2).Info("line")
	klog.FromContext(ctx).V(3).Info("more")
	if got := out.String(); !strings.HasPrefix(got, "{") || !strings.Contains(got, "\"v\":2") || strings.Contains(got, "more") {
		t.Errorf("the log has %s", got)
	}
}
