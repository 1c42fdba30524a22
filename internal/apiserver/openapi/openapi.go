// Package openapi serves the OpenAPI documents: version 2 as one document,
// version 3 as an index and one document for each group version. Those of
// the built-in resources are made by `make generate` and embedded compressed,
// so that nothing is built at start; further ones (custom resources,
// aggregated servers) are set while running.
//
//	GET /openapi/v2                JSON or protobuf
//	GET /openapi/v3                {"paths": {"apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=..."}}}
//	GET /openapi/v3/apis/apps/v1   JSON or protobuf; immutable when asked for by its hash
package openapi

import (
	"bytes"
	"crypto/sha512"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/coracle-io/coracle/internal/version"
)

//go:embed all:documents
var documents embed.FS

const (
	typeJSON  = "application/json"
	typeV2    = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	typeV2Old = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	typeV3    = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	typeV3Old = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// Handler serves /openapi/v2, /openapi/v3 and what is below it.
type Handler struct {
	mu      sync.RWMutex // guards what is below
	v3      map[string]entry
	remotes map[string]remote // version 3 documents of other servers, by the servers' names
	parts   map[string]*part  // additions to the version 2 document by name
	v2      func() (*v2Documents, error)
	own     func() (*v2Documents, error) // the version 2 document of the built-in resources
	off     unserved                     // what of the built-in resources is not in it

	parsing sync.Mutex // held while a version 3 document is made into protobuf, one at a time
}

// entry is a version 3 document in the index.
type entry struct {
	hash func() string // which names the document in its URL
	made func() (*document, error)
}

// remote is a server that answers for version 3 documents by their paths.
type remote struct {
	urls    map[string]string
	handler http.Handler
}

// New returns a handler with the documents of the built-in resources.
func New() (*Handler, error) {
	h := &Handler{v3: map[string]entry{}, remotes: map[string]remote{}, parts: map[string]*part{}}
	entries, err := documents.ReadDir("documents/v3")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		raw, err := documents.ReadFile("documents/v3/" + e.Name())
		if err != nil {
			return nil, err
		}
		path := strings.ReplaceAll(strings.TrimSuffix(e.Name(), ".json.gz"), "_", "/")
		d := newDocument(raw)
		h.v3[path] = entry{hash: d.hash, made: ready(d)}
	}
	v2JSON, err := documents.ReadFile("documents/v2.json.gz")
	if err != nil {
		return nil, err
	}
	v2Proto, err := documents.ReadFile("documents/v2.pb.gz")
	if err != nil {
		return nil, err
	}
	own := &v2Documents{json: newDocument(v2JSON), proto: ready(newDocument(v2Proto))}
	h.own = func() (*v2Documents, error) { return own, nil }
	h.renewV2()
	return h, nil
}

// SetV3 puts the version 3 document of a path such as "apis/example.com/v1"
// into the index; a nil render takes it out. The document is made when it is
// asked for. tag says what it is made of, so that the index need not wait for
// it: another document has another tag.
func (h *Handler) SetV3(path, tag string, render func() ([]byte, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if render == nil {
		delete(h.v3, path)
		return
	}
	hash := fmt.Sprintf("%X", sha512.Sum512([]byte(version.Kubernetes+" "+path+" "+tag)))
	h.v3[path] = entry{hash: func() string { return hash }, made: sync.OnceValues(func() (*document, error) {
		raw, err := render()
		if err != nil {
			return nil, err
		}
		gzipped, err := compress(raw)
		if err != nil {
			return nil, err
		}
		return &document{gzipped: gzipped, hash: func() string { return hash }}, nil
	})}
}

// SetV3Remote puts documents that another server answers for into the index,
// with their URLs by path; nil takes them out. Documents of this server's own
// come before them.
func (h *Handler) SetV3Remote(name string, urls map[string]string, handler http.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if urls == nil {
		delete(h.remotes, name)
		return
	}
	h.remotes[name] = remote{urls, handler}
}

// remoteFor returns who answers for a path; nil for nobody.
func (h *Handler) remoteFor(path string) http.Handler {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(h.remotes)) {
		if r := h.remotes[name]; r.urls[path] != "" {
			return r.handler
		}
	}
	return nil
}

func ready(d *document) func() (*document, error) {
	return func() (*document, error) { return d, nil }
}

// document returns the version 3 document of a path; nil if there is none.
func (h *Handler) document(path string) (*document, error) {
	h.mu.RLock()
	e, ok := h.v3[path]
	h.mu.RUnlock()
	if !ok {
		return nil, nil
	}
	return e.made()
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		h.serveV2(w, r)
	case path == "/openapi/v3":
		h.serveIndex(w, r)
	case strings.HasPrefix(path, "/openapi/v3/"):
		h.serveV3(w, r, strings.TrimPrefix(path, "/openapi/v3/"))
	default:
		http.NotFound(w, r)
	}
}

func (h *Handler) serveIndex(w http.ResponseWriter, r *http.Request) {
	type location struct {
		URL string `json:"serverRelativeURL"`
	}
	index := struct {
		Paths map[string]location `json:"paths"`
	}{Paths: map[string]location{}}
	h.mu.RLock()
	all, remotes := maps.Clone(h.v3), maps.Clone(h.remotes)
	h.mu.RUnlock()
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(remotes))) {
		for path, at := range remotes[name].urls {
			index.Paths[path] = location{URL: at}
		}
	}
	for path, e := range all {
		index.Paths[path] = location{URL: "/openapi/v3/" + path + "?hash=" + e.hash()}
	}
	raw, err := json.Marshal(index)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Etag", fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(raw))))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(raw))
}

func (h *Handler) serveV3(w http.ResponseWriter, r *http.Request, path string) {
	d, err := h.document(path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if d == nil {
		if h := h.remoteFor(path); h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
		return
	}
	if asked := r.URL.Query().Get("hash"); asked != "" {
		if asked != d.hash() {
			current := url.URL{Path: r.URL.Path, RawQuery: "hash=" + d.hash()}
			http.Redirect(w, r, current.String(), http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
		w.Header().Set("Cache-Control", "public, immutable")
	}
	switch negotiate(r, typeJSON, typeV3, typeV3Old) {
	case typeJSON:
		write(w, r, d, typeJSON)
	case typeV3, typeV3Old:
		asProto, err := h.v3Protobuf(d)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		write(w, r, asProto, typeV3)
	default:
		w.WriteHeader(http.StatusNotAcceptable)
	}
}

func negotiate(r *http.Request, offered ...string) string {
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	return goautoneg.Negotiate(accept, offered)
}

// Path is where the index has the document of a group version.
func Path(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// Schemas returns the schemas of a built-in group version by definition name;
// none if there are none here.
func (h *Handler) Schemas(gv schema.GroupVersion) (map[string]*spec.Schema, error) {
	path := Path(gv)
	d, err := h.document(path)
	if d == nil || err != nil {
		return nil, err
	}
	raw, err := decompress(d.gzipped)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil, fmt.Errorf("OpenAPI v3 of %v: %w", gv, err)
	}
	return parsed.Components.Schemas, nil
}
