package podautoscaler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalmetrics "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/coracle-io/coracle/internal/amount"
)

// checkedAnswers refuses answers of the metrics APIs with quantities that would
// keep the controllers busy for hours. Other servers give these answers, and their
// values may be what a tenant's pods report.
type checkedAnswers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c checkedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err != nil || response.StatusCode >= http.StatusMultipleChoices {
		return response, err // an error has no quantities
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(r.URL.Path, response.Header.Get("Content-Type"), body); err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// checkAnswer checks the body of an answer of the API at a path. The clients ask
// for JSON, and decode other encodings, too, which are refused.
func checkAnswer(path, contentType string, body []byte) error {
	if media, _, err := mime.ParseMediaType(contentType); contentType != "" && (err != nil || media != runtime.ContentTypeJSON) {
		return fmt.Errorf("the answer is of the type %q instead of %s", contentType, runtime.ContentTypeJSON)
	}
	into, kind := any(&v1beta1.PodMetricsList{}), "PodMetricsList"
	switch {
	case strings.Contains(path, "/apis/custom.metrics.k8s.io/"):
		into, kind = &custommetrics.MetricValueList{}, "MetricValueList"
	case strings.Contains(path, "/apis/external.metrics.k8s.io/"):
		into, kind = &externalmetrics.ExternalMetricValueList{}, "ExternalMetricValueList"
	}
	if !amount.Suspicious(body) {
		return nil
	}
	var said metav1.TypeMeta // the kind that the clients decode
	if err := json.Unmarshal(body, &said); err != nil {
		return err
	}
	if said.Kind != "" && said.Kind != kind {
		return fmt.Errorf("the answer is a %s instead of a %s", said.Kind, kind)
	}
	return amount.CheckJSON(into, body)
}
