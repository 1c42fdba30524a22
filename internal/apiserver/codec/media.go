package codec

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Media is a media type of request and response bodies.
type Media int8

// The media types, in the order in which the server prefers them.
const (
	JSON Media = iota
	YAML
	Protobuf
	CBOR // only where it is turned on
)

var mediaNames = [...]string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"}

func (m Media) String() string { return mediaNames[m] }

// Output is how a client wants its answer.
type Output struct {
	Media  Media
	Pretty bool
	// Convert is Table, PartialObjectMetadata or PartialObjectMetadataList in
	// a version of meta.k8s.io; zero for the object itself.
	Convert schema.GroupVersionKind
}

// Accepted describes what an endpoint can answer with.
type Accepted struct {
	Protobuf bool // the plain object has a protobuf form
	Stream   bool // a watch: no YAML
	Convert  bool // Table and PartialObjectMetadata can be had
	NoTable  bool // Convert holds, but for Table: the kind has no columns
	CBOR     bool // CBOR is turned on
}

// NotAcceptable lists the media types for the error message of a 406.
func NotAcceptable(stream, cbor bool) []string {
	names := append([]string(nil), mediaNames[:CBOR]...)
	if stream {
		names = []string{"application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"}
	}
	switch {
	case cbor && stream:
		return append(names, runtime.ContentTypeCBORSequence)
	case cbor:
		return append(names, runtime.ContentTypeCBOR)
	}
	return names
}

// Negotiate chooses the form of the answer from the Accept header; ok is
// false if there is none that the client would take.
func Negotiate(r *http.Request, a Accepted) (o Output, ok bool) {
	o, ok = negotiate(r.Header["Accept"], a)
	if ok && o.Media == JSON && !o.Pretty {
		o.Pretty = wantsPretty(r)
	}
	return o, ok
}

func negotiate(accept []string, a Accepted) (Output, bool) {
	if len(accept) == 0 || accept[0] == "" {
		return Output{}, true
	}
	switch accept[0] {
	case "application/json", "*/*", "application/json, */*":
		return Output{}, true
	case "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json":
		if a.Protobuf {
			return Output{Media: Protobuf}, true
		}
	}
	for _, clause := range goautoneg.ParseAccept(accept[0]) {
		for m := JSON; m <= CBOR; m++ {
			if !matches(clause.Type, clause.SubType, m) || m == YAML && a.Stream || m == CBOR && !a.CBOR {
				continue
			}
			if o, ok := clauseOutput(clause.Params, m, a); ok {
				return o, true
			}
		}
	}
	return Output{}, false
}

func matches(mainType, subType string, m Media) bool {
	if mainType == "*" && subType == "*" {
		return true
	}
	if mainType != "application" {
		return false
	}
	return subType == "*" || subType == mediaNames[m][len("application/"):] || m == CBOR && subType == "cbor-seq"
}

func clauseOutput(params map[string]string, m Media, a Accepted) (Output, bool) {
	o := Output{Media: m}
	convert := false
	for k, v := range params {
		switch k {
		case "as":
			o.Convert.Kind, convert = v, true
		case "g":
			o.Convert.Group, convert = v, true
		case "v":
			o.Convert.Version, convert = v, true
		case "stream":
			if v != "" && v != "watch" {
				return Output{}, false
			}
		case "sv":
			if v != "" && v != "v1" {
				return Output{}, false
			}
		case "pretty":
			o.Pretty = v == "1"
		}
	}
	if !convert {
		return o, m != Protobuf || a.Protobuf
	}
	if !a.Convert || o.Convert.GroupVersion() != metav1.SchemeGroupVersion && o.Convert.GroupVersion() != metav1beta1.SchemeGroupVersion {
		return Output{}, false
	}
	switch o.Convert.Kind {
	case "Table":
		return o, m != Protobuf && !a.NoTable
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return o, true
	}
	return Output{}, false
}

// wantsPretty is the rule for people with a browser or curl.
func wantsPretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if pretty := r.URL.Query().Get("pretty"); pretty != "" {
			yes, _ := strconv.ParseBool(pretty)
			return yes
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// InputMedia reads a Content-Type header; ok is false for types that the
// server does not take.
func InputMedia(contentType string, protobuf, cbor bool) (m Media, ok bool) {
	switch contentType {
	case "", "application/json":
		return JSON, true
	}
	name, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return 0, false
	}
	for m := JSON; m <= CBOR; m++ {
		if name == mediaNames[m] {
			return m, (m != Protobuf || protobuf) && (m != CBOR || cbor)
		}
	}
	return 0, false
}

// Dress turns compact JSON into the form that o asks for: indented, YAML or
// as it is.
func (o Output) Dress(data []byte) ([]byte, error) {
	switch {
	case o.Media == YAML:
		return yaml.JSONToYAML(data)
	case o.Media == JSON && o.Pretty:
		var b bytes.Buffer
		b.Grow(len(data) * 2)
		if err := json.Indent(&b, bytes.TrimSuffix(data, []byte("\n")), "", "  "); err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	}
	return data, nil
}

// Plain says that cached bytes can be sent as they are.
func (o Output) Plain() bool {
	return o.Convert.Kind == "" && (o.Media == Protobuf || o.Media == CBOR || o.Media == JSON && !o.Pretty)
}
