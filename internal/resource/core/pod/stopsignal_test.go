package pod_test

import (
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestStopSignals checks which signals can stop containers (KEP-4960).
func TestStopSignals(t *testing.T) {
	features, err := feature.Parse([]string{"ContainerStopSignals=true"})
	if err != nil {
		t.Fatal(err)
	}
	const at = "spec.containers[0].lifecycle.stopSignal: "
	for _, c := range []struct{ os, signal, want string }{
		{"linux", "SIGUSR1", ""},
		{"linux", "SIGRTMIN+15", ""},
		{"linux", "SIGRTMAX-14", ""},
		{"linux", "SIGNONE", at + `Unsupported value: "SIGNONE": supported values: "SIGABRT", "SIGALRM"`},
		{"linux", "SIGRTMIN+16", at + `Unsupported value: "SIGRTMIN+16"`},
		{"windows", "SIGTERM", ""},
		{"windows", "SIGUSR1", at + `Unsupported value: "SIGUSR1": supported values: "SIGKILL", "SIGTERM"`},
		{"", "SIGTERM", at + "Forbidden: may not be set for containers with empty `spec.os.name`"},
	} {
		p := newPod(t, `{containers: [{name: c, image: i, lifecycle: {stopSignal: `+c.signal+`}}], os: `+map[bool]string{true: "null", false: "{name: " + c.os + "}"}[c.os == ""]+`}`)
		errs := resourcetest.BeforeCreate(pod.Pods(), &resource.RequestContext{Now: noon, Namespace: "default", Features: features}, p)
		got := ""
		if err := errs.ToAggregate(); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s on %q: %s, want %s", c.signal, c.os, got, c.want)
		}
	}
}
