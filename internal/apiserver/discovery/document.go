package discovery

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
)

// document is one response. The JSON and its ETag are made by the first
// request.
type document struct {
	obj     runtime.Object
	encoded func() encoded
}

type encoded struct {
	json []byte
	etag string
}

func newDocument(obj runtime.Object) *document {
	return &document{obj: obj, encoded: sync.OnceValue(func() encoded {
		data, err := codec.Encode(obj, codec.JSON)
		if err != nil {
			data, _ = json.Marshal(obj)
		}
		return encoded{json: data, etag: strconv.Quote(fmt.Sprintf("%X", sha512.Sum512(data)))}
	})}
}

func build(groups []*group, hashes bool) *documents {
	d := &documents{plain: map[string]*document{}, aggregated: map[string]*document{}}
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	core, others := newDiscoveryList(), newDiscoveryList()
	versions := &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}
	for _, g := range groups {
		for _, v := range g.versions {
			if g.remote[v] == nil {
				d.plain[g.path(v)] = newDocument(g.resourceList(v, hashes))
			}
		}
		if g.name == "" {
			versions.Versions = g.versions
			core.Items = append(core.Items, g.discoveryGroup())
			continue
		}
		alone := g.apiGroup()
		d.plain[g.path("")] = newDocument(&alone)
		listed := g.apiGroup()
		listed.TypeMeta = metav1.TypeMeta{}
		list.Groups = append(list.Groups, listed)
		others.Items = append(others.Items, g.discoveryGroup())
	}
	d.plain["/api"], d.plain["/apis"] = newDocument(versions), newDocument(list)
	d.aggregated["/api"], d.aggregated["/apis"] = newDocument(core), newDocument(others)
	return d
}

func newDiscoveryList() *apidiscoveryv2.APIGroupDiscoveryList {
	return &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
}

func trim(path string) string { return strings.TrimSuffix(path, "/") }

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// ServeHTTP serves the document at the request's path.
func (d *Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := trim(r.URL.Path)
	all := d.load()
	if aggregated := all.aggregated[path]; aggregated != nil {
		w.Header().Add("Vary", "Accept")
		if wantsAggregated(r.Header.Get("Accept")) {
			aggregated.serve(w, r)
			return
		}
	}
	plain := all.plain[path]
	if plain == nil {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if path == "/api" {
		plain = plain.withAddress(r)
	}
	output, ok := codec.Negotiate(r, codec.Accepted{Protobuf: true})
	if !ok {
		http.Error(w, "only the following media types are accepted: "+strings.Join(codec.NotAcceptable(false, false), ", "), http.StatusNotAcceptable)
		return
	}
	body := plain.encoded().json
	var err error
	if output.Media == codec.Protobuf {
		body, err = codec.Encode(plain.obj, codec.Protobuf)
	} else {
		body, err = output.Format(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", output.Media.String())
	_, _ = w.Write(body)
}

// withAddress returns the document with the address at which the client
// reached the server.
func (d *document) withAddress(r *http.Request) *document {
	versions := *d.obj.(*metav1.APIVersions)
	versions.ServerAddressByClientCIDRs = []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}}
	return newDocument(&versions)
}

// serve sends the document with an ETag, or 304 if the client has it.
func (d *document) serve(w http.ResponseWriter, r *http.Request) {
	header, encoded := w.Header(), d.encoded()
	header.Set("ETag", encoded.etag)
	header.Set("Content-Type", aggregatedType)
	header.Set("Cache-Control", "public")
	if known := r.Header.Get("If-None-Match"); known != "" && slices.ContainsFunc(strings.Split(known, ","), func(tag string) bool {
		return strings.TrimSpace(tag) == encoded.etag
	}) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(encoded.json)
}

// wantsAggregated reports whether a client prefers the aggregated document to
// the plain list.
func wantsAggregated(accept string) bool {
	if !strings.Contains(accept, "APIGroupDiscoveryList") {
		return false
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		if clause.Type != "application" || clause.SubType != "json" && clause.SubType != "*" {
			continue
		}
		p := clause.Params
		switch {
		case p["as"] == "":
			return false
		case p["as"] == "APIGroupDiscoveryList" && p["g"] == "apidiscovery.k8s.io" && p["v"] == "v2":
			return true
		}
	}
	return false
}
