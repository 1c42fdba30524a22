package kubelet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	v1 "k8s.io/api/core/v1"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/coracle-io/coracle/internal/tracing"
)

// TestSyncsAreSpans checks that the work on a pod is in spans with upstream's names and
// attributes, and that one which fails says so.
func TestSyncsAreSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		b := newBench(t)
		b.configure = func(c *Config) {
			c.Diagnostics.Tracing = &tracing.Provider{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}
		}
		b.start()
		defer func() { b.stop() }()
		b.create(pod("web"))
		b.after(time.Second)
		b.create(pod("broken", func(p *v1.Pod) { // its config map does not exist
			p.Spec.Volumes = []v1.Volume{{Name: "conf", VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}},
			}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "conf", MountPath: "/conf"}}
		}))
		b.after(time.Second)
		b.delete("web", 30)
		b.after(time.Minute)

		seen := map[string]bool{}
		for _, span := range spans.Ended() {
			of := map[string]string{}
			for _, a := range span.Attributes() {
				of[string(a.Key)] = a.Value.AsString()
			}
			name := of["k8s.pod.name"]
			if of["k8s.pod.uid"] != "uid-"+name || of["k8s.pod"] != "default/"+name || of["k8s.namespace.name"] != "default" {
				t.Errorf("the attributes of %s are %v", span.Name(), of)
			}
			seen[span.Name()+" "+name] = true
			if span.Status().Code == codes.Error {
				seen["failed "+name] = true
			}
		}
		for _, want := range []string{"syncPod web", "syncTerminatingPod web", "syncPod broken", "failed broken"} {
			if !seen[want] {
				t.Errorf("the spans are %v, without %q", seen, want)
			}
		}
		if seen["failed web"] {
			t.Error("a span of a pod that runs has an error")
		}
	})
}

// TestTracingNeedsAProvider checks that the setting is not without effect.
func TestTracingNeedsAProvider(t *testing.T) {
	c := Config{NodeName: nodeName}
	c.Configuration.Tracing = &tracingapi.TracingConfiguration{}
	if err := c.Complete(); err == nil || !strings.Contains(err.Error(), "tracing") {
		t.Errorf("%v", err)
	}
	if p := NewTracing(&c.Configuration, nodeName); p == nil {
		t.Error("no provider of spans for the configuration")
	}
	c.Configuration.Tracing = nil
	if p := NewTracing(&c.Configuration, nodeName); p != nil {
		t.Error("a provider of spans without a configuration")
	}
}
