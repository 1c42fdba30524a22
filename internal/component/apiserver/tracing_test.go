package apiserver_test

import (
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/tracing/tracingtest"
)

const (
	tracingConfiguration = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
	everything           = "samplingRatePerMillion: 1000000\n"
	configMaps           = "/api/v1/namespaces/default/configmaps"
	// A trace of a client.
	clientsTrace, clientsSpan = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	traceparent               = "00-" + clientsTrace + "-" + clientsSpan
)

// startTraced runs an API server that sends its spans to a collector.
func startTraced(t *testing.T, sampling string, args ...string) (*whole, *tracingtest.Collector) {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10") // milliseconds
	spans := tracingtest.Start(t)
	path := file(t, "tracing.yaml", tracingConfiguration+"endpoint: \""+spans.Endpoint+"\"\n"+sampling)
	return startWhole(t, append(args, "--tracing-config-file="+path)...), spans
}

// spanOf waits for the span of the request with an audit ID.
func spanOf(t *testing.T, spans *tracingtest.Collector, auditID string) tracingtest.Span {
	t.Helper()
	var found tracingtest.Span
	eventually(t, "the span of the request "+auditID, func() bool {
		for _, span := range spans.Spans() {
			if span.Attribute("audit-id") == auditID {
				found = span
				return true
			}
		}
		return false
	})
	return found
}

func TestRequestsAreSpans(t *testing.T) {
	s, spans := startTraced(t, everything)
	if code, body := s.do(s.admin(), "POST", configMaps+"?pretty=0", `{"metadata":{"name":"m"}}`, "Audit-Id", "first"); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	span := spanOf(t, spans, "first")
	if want := "POST /api/v1/namespaces/{:namespace}/configmaps"; span.GetName() != want || span.GetKind() != otlp.Span_SPAN_KIND_SERVER || len(span.GetParentSpanId()) != 0 {
		t.Errorf("the span is %q, %s, with the parent %x; want %q", span.GetName(), span.GetKind(), span.GetParentSpanId(), want)
	}
	for key, want := range map[string]string{
		"http.request.method": "POST", "http.response.status_code": "201", "url.path": configMaps, "http.target": configMaps + "?pretty=0",
		"url.scheme": "https", "server.address": "127.0.0.1", "user_agent.original": "test",
	} {
		if got := span.Attribute(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if span.Resource["service.name"] != "apiserver" || !strings.HasPrefix(span.Resource["service.instance.id"], "apiserver-") {
		t.Errorf("the resource is %v", span.Resource)
	}
	eventually(t, "the span of the write to the store", func() bool {
		for _, write := range spans.Find("Create etcd3") {
			if string(write.GetParentSpanId()) == string(span.GetSpanId()) {
				return write.Attribute("key") == "/registry/configmaps/default/m"
			}
		}
		return false
	})

	s.do(s.admin(), "DELETE", configMaps+"/none", "", "Audit-Id", "second", "User-Agent", "bad \xff text")
	span = spanOf(t, spans, "second")
	if want := "DELETE /api/v1/namespaces/{:namespace}/configmaps/{:name}"; span.GetName() != want || span.Attribute("http.response.status_code") != "404" {
		t.Errorf("the span is %q with %s, want %q", span.GetName(), span.Attribute("http.response.status_code"), want)
	}
	s.do(s.admin(), "GET", "/version", "", "Audit-Id", "third")
	if span = spanOf(t, spans, "third"); span.GetName() != "GET" {
		t.Errorf("the span of /version is %q", span.GetName())
	}
}

// TestClientsTraces checks that members of system:masters and system:monitoring alone
// continue their traces, and that nothing is sampled besides these.
func TestClientsTraces(t *testing.T) {
	tokens := file(t, "tokens.csv", "secret,monitor,1,system:monitoring\nother,somebody,2,system:others\n")
	s, spans := startTraced(t, "", "--token-auth-file="+tokens)
	s.do(s.withToken("other"), "GET", "/version", "", "traceparent", traceparent+"-01", "Audit-Id", "other")
	s.do(s.admin(), "GET", "/version", "", "Audit-Id", "no trace")
	s.do(s.admin(), "GET", "/version", "", "traceparent", traceparent+"-00", "Audit-Id", "not sampled")
	s.do(s.withToken("secret"), "GET", "/version", "", "traceparent", traceparent+"-01", "Audit-Id", "monitor")
	s.do(s.admin(), "GET", "/version", "", "traceparent", traceparent+"-01", "Audit-Id", "admin")
	for _, id := range []string{"monitor", "admin"} {
		span := spanOf(t, spans, id)
		if trace, parent := hex.EncodeToString(span.GetTraceId()), hex.EncodeToString(span.GetParentSpanId()); trace != clientsTrace || parent != clientsSpan {
			t.Errorf("%s: the trace is %s and the parent %s", id, trace, parent)
		}
	}
	for _, span := range spans.Spans() {
		id, request := span.Attribute("audit-id"), span.GetKind() == otlp.Span_SPAN_KIND_SERVER
		if request && id != "monitor" && id != "admin" || hex.EncodeToString(span.GetTraceId()) != clientsTrace {
			t.Errorf("the request %q is sampled: %v", id, span.Span)
		}
	}
}

func TestTraceOfOrdinaryUserIsLinked(t *testing.T) {
	s, spans := startTraced(t, everything)
	s.do(s.config(), "GET", "/version", "", "traceparent", traceparent+"-01", "Audit-Id", "anonymous")
	span := spanOf(t, spans, "anonymous")
	if hex.EncodeToString(span.GetTraceId()) == clientsTrace || len(span.GetParentSpanId()) != 0 {
		t.Errorf("the span continues the client's: %v", span.Span)
	}
	if links := span.GetLinks(); len(links) != 1 || hex.EncodeToString(links[0].GetTraceId()) != clientsTrace {
		t.Errorf("the links are %v", links)
	}
}

// TestWebhooksGetTheTrace checks that a webhook is told of the trace of the request
// for which it is called.
func TestWebhooksGetTheTrace(t *testing.T) {
	var mu sync.Mutex // guards told
	var told string
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		told = r.Header.Get("traceparent")
		mu.Unlock()
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&review)
	}))
	t.Cleanup(hook.Close)
	s, spans := startTraced(t, "")
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	_, err := s.clientset(s.admin()).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hook.example.com", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the webhook is called", func() bool {
		s.do(s.admin(), "POST", configMaps, `{"metadata":{"generateName":"m-"}}`, "traceparent", traceparent+"-01")
		mu.Lock()
		defer mu.Unlock()
		return told != ""
	})
	if !strings.HasPrefix(told, "00-"+clientsTrace+"-") || !strings.HasSuffix(told, "-01") {
		t.Errorf("the webhook is told of %q", told)
	}
	call := spans.Wait(t, "Call validating webhook")
	if hex.EncodeToString(call.GetTraceId()) != clientsTrace {
		t.Errorf("the span of the call is in another trace: %v", call.Span)
	}
	if sent := spans.Wait(t, "HTTP POST"); sent.GetKind() != otlp.Span_SPAN_KIND_CLIENT {
		t.Errorf("the span of the request to the webhook is %v", sent.Span)
	}
}

// TestSilentCollector checks that requests and the end of the server do not depend on
// the collector.
func TestSilentCollector(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	s := startWhole(t, "--tracing-config-file="+file(t, "tracing.yaml", tracingConfiguration+everything+"endpoint: \""+silent.Addr().String()+"\"\n"))
	for range 3 {
		if code, body := s.do(s.admin(), "POST", configMaps, `{"metadata":{"generateName":"m-"}}`); code != http.StatusCreated {
			t.Errorf("%d %s", code, body)
		}
	}
}

func TestTracingConfigurationIsValidated(t *testing.T) {
	for content, want := range map[string][]string{
		"none":                               {"--tracing-config-file"},
		tracingConfiguration + "sampling: 1": {`unknown field "sampling"`},
		tracingConfiguration + "samplingRatePerMillion: -1\nendpoint: http://localhost:4317": {"samplingRatePerMillion", "sampling rate must be positive", "endpoint", "unsupported scheme"},
		tracingConfiguration + "samplingRatePerMillion: 1000001":                             {"samplingRatePerMillion", "less than or equal to one million"},
		strings.Replace(tracingConfiguration, "Tracing", "Admission", 1):                     {"--tracing-config-file"},
	} {
		err := commandLine(t, "--tracing-config-file="+file(t, "tracing.yaml", content)).Validate()
		if err == nil {
			t.Errorf("%s is accepted", content)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v lacks %q", content, err, part)
			}
		}
	}
	if err := commandLine(t, "--tracing-config-file=/nowhere/tracing.yaml").Validate(); err == nil || !strings.Contains(err.Error(), "--tracing-config-file") {
		t.Errorf("a missing file: %v", err)
	}
}
