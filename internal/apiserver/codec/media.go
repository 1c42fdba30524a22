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

// Media types in the server's order of preference.
const (
	JSON Media = iota
	YAML
	Protobuf
	CBOR // if enabled
)

// String returns the name of the media type.
func (m Media) String() string {
	switch m {
	case JSON:
		return runtime.ContentTypeJSON
	case YAML:
		return runtime.ContentTypeYAML
	case Protobuf:
		return runtime.ContentTypeProtobuf
	case CBOR:
		return runtime.ContentTypeCBOR
	}
	return ""
}

// Output is the form of a response that a client requests.
type Output struct {
	Media  Media
	Pretty bool
	// Convert is Table, PartialObjectMetadata or PartialObjectMetadataList in
	// a version of meta.k8s.io; zero means the object itself.
	Convert schema.GroupVersionKind
}

// Accepted describes the forms of responses that an endpoint supports.
type Accepted struct {
	Protobuf bool // the object has a protobuf form
	Stream   bool // a watch: no YAML
	Convert  bool // Table and PartialObjectMetadata are supported
	NoTable  bool // except Table: the kind has no columns
	CBOR     bool // CBOR is enabled
}

// NotAcceptable returns the media types for the message of a 406.
func NotAcceptable(stream, cbor bool) []string {
	names := []string{JSON.String(), YAML.String(), Protobuf.String()}
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

// Negotiate returns the form of the response for the Accept header. ok is
// false if the client accepts none that the endpoint supports.
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
	return subType == "*" || subType == m.String()[len("application/"):] || m == CBOR && subType == "cbor-seq"
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

// wantsPretty reports whether JSON should be indented: as the query says, or
// else for browsers and curl.
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

// InputMedia parses a Content-Type header. ok is false for types that the
// server does not support.
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
		if name == m.String() {
			return m, (m != Protobuf || protobuf) && (m != CBOR || cbor)
		}
	}
	return 0, false
}

// Format converts compact JSON to the form of o: indented, YAML or unchanged.
func (o Output) Format(data []byte) ([]byte, error) {
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

// Plain reports whether cached encodings can be sent unchanged.
func (o Output) Plain() bool {
	return o.Convert.Kind == "" && (o.Media == Protobuf || o.Media == CBOR || o.Media == JSON && !o.Pretty)
}
