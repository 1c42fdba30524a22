package base

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/logging"
)

// A flag of the log has its effect, is refused, or says that it has none.
func TestLoggingFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":                      "",
		"--logging-format=text": "",
		"--logging-format=json --log-flush-frequency=1s --log-json-info-buffer-size=0": "",
		"--logging-format=xml":     "--logging-format=xml: want text or json",
		"--log-flush-frequency=0s": "--log-flush-frequency=0s must be greater than 0",
		"--vmodule=a=2 --log-json-split-stream --log-text-split-stream=true --log-json-info-buffer-size=1Ki --log-text-info-buffer-size=1000000": "",
	} {
		o, fs := NewLogging(), pflag.NewFlagSet("component", pflag.ContinueOnError)
		o.AddFlags(fs)
		fs.AddFlagSet(IgnoredLogFlags())
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

// A configuration file that says what has no effect is told so. kubeadm's says the defaults.
func TestLoggingWarnings(t *testing.T) {
	none := logsapi.LoggingConfiguration{Format: "json", Verbosity: 2}
	none.Options.JSON.InfoBufferSize = resource.QuantityValue{Quantity: resource.MustParse("0")}
	all := logsapi.LoggingConfiguration{VModule: logsapi.VModuleConfiguration{{FilePattern: "a", Verbosity: 2}}}
	all.Options.JSON.SplitStream, all.Options.Text.SplitStream = true, true
	all.Options.JSON.InfoBufferSize = resource.QuantityValue{Quantity: resource.MustParse("1Ki")}
	all.Options.Text.InfoBufferSize = all.Options.JSON.InfoBufferSize
	if got := LoggingWarnings(&none); len(got) > 0 {
		t.Errorf("warnings %q about what has its effect", got)
	}
	var names []string
	for _, w := range LoggingWarnings(&all) {
		name, _, _ := strings.Cut(w, " has no effect: ")
		names = append(names, name)
	}
	if got, want := strings.Join(names, " "), "logging.vmodule logging.options.json.splitStream logging.options.text.splitStream "+
		"logging.options.json.infoBufferSize logging.options.text.infoBufferSize"; got != want {
		t.Errorf("warnings about %s, want %s", got, want)
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
