package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// evil are values that are put in the place of others.
func evil() []any {
	long := strings.Repeat("x", 70_000)
	return []any{
		nil, "", "x", "-1", "0", "*", "..", "/", "a/b", "\x00", "\u202e", "é", long, "2006-01-02T15:04:05Z", "0001-01-01T00:00:00Z",
		"9999-12-31T23:59:59Z", "292277026596-12-04T15:30:07Z", "1h", "-2562047h47m16.854775808s", "100%", "-1%", "99999999999%", "%",
		"1", "1Ki", "-1", "1e400", "1E-400", "9223372036854775807", "9223372036854775808", "0.000000000000000000001", "1.5.5", "+", ".", "Ei",
		"10.0.0.1", "10.0.0.1/33", "::/129", "::ffff:1.2.3.4", "256.1.1.1", "fe80::1%eth0", "[::1]:80", "http://[::1", "$(A)", "$($(", "{{.}}",
		"self.a.b.c", "((((((((", "'", "size([1,2,3].map(x, [1,2,3].map(y, x)))", ".metadata.name[?(@", "a in (b", "!a,b=c", "system:masters",
		json.Number("0"), json.Number("1"), json.Number("-1"), json.Number("2147483647"), json.Number("2147483648"), json.Number("-2147483649"),
		json.Number("9223372036854775807"), json.Number("-9223372036854775808"), json.Number("18446744073709551616"), json.Number("1.5"), json.Number("1e100"),
		json.Number("65536"), json.Number("4294967295"), true, false,
		[]any{}, []any{nil}, []any{""}, []any{map[string]any{}}, []any{nil, nil}, map[string]any{}, map[string]any{"": nil}, map[string]any{"": ""},
		map[string]any{"key": nil}, map[string]any{"name": nil}, map[string]any{"matchLabels": nil, "matchExpressions": []any{nil}},
		map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "In"}}}, map[string]any{"$patch": "delete"}, map[string]any{"$retainKeys": []any{nil}},
		map[string]any{"type": nil, "value": map[string]any{}},
	}
}

// adversary makes valid objects invalid, always in the same ways for a seed.
type adversary struct {
	*rand.Rand
	evil []any
}

func newAdversary(seed uint64) *adversary {
	return &adversary{rand.New(rand.NewPCG(seed, 7)), evil()}
}

// spoil changes some places of an object.
func (a *adversary) spoil(object any) any {
	for range 1 + a.IntN(3) {
		object = a.change(object, 0)
	}
	return object
}

func (a *adversary) value() any { return copied(a.evil[a.IntN(len(a.evil))]) }

// copied copies a value, so that what is changed is in one place alone.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for key, value := range v {
			c[key] = copied(value)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, value := range v {
			c[i] = copied(value)
		}
		return c
	}
	return v
}

// change changes one place: the deeper, the likelier it stops.
func (a *adversary) change(v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 || depth > 1 && a.IntN(5) == 0 {
			return a.value()
		}
		keys := slices.Sorted(maps.Keys(v))
		key := keys[a.IntN(len(keys))]
		if depth == 0 && a.IntN(3) > 0 && v["spec"] != nil {
			key = "spec"
		}
		switch a.IntN(12) {
		case 0:
			delete(v, key)
		case 1:
			v[key] = a.value()
		case 2:
			v[keys[a.IntN(len(keys))]] = copied(v[key])
		default:
			v[key] = a.change(v[key], depth+1)
		}
		return v
	case []any:
		if len(v) == 0 || a.IntN(8) == 0 {
			return a.value()
		}
		i := a.IntN(len(v))
		switch a.IntN(8) {
		case 0:
			return append(v, copied(v[i]))
		case 1:
			return append(v, a.value())
		case 2:
			return slices.Delete(v, i, i+1)
		}
		v[i] = a.change(v[i], depth+1)
		return v
	}
	return a.value()
}

// attack sends an object that was spoilt in all ways in which objects come.
func (s *server) attack(a *adversary, r *resource.Resource, answer *resourcetest.Answer, stored string) {
	collection := s.collections[answer.Kind]
	query := "?dryRun=All&fieldValidation=" + []string{"Ignore", "Warn", "Strict"}[a.IntN(3)]
	fresh := func() any {
		object := exact(s.t, answer.Request)
		return a.spoil(object)
	}
	body := encode(s.t, fresh())
	s.blameless(http.MethodPost, collection+query, "application/json", body, "")
	if converted, err := yaml.JSONToYAML(body); err == nil {
		s.blameless(http.MethodPost, collection+query, "application/yaml", converted, "application/json;as=Table;v=v1;g=meta.k8s.io")
	}
	if stored == "" {
		return
	}
	uris := []string{collection + "/" + stored}
	for i := range r.Subresources {
		if sub := &r.Subresources[i]; slices.Contains(sub.Verbs, "update") && sub.Name != "proxy" {
			uris = append(uris, uris[0]+"/"+sub.Name)
		}
	}
	for _, uri := range uris {
		object := fresh()
		if m, ok := object.(map[string]any); ok { // so that it gets past the first checks
			if metadata, ok := m["metadata"].(map[string]any); ok {
				metadata["name"] = stored
			}
		}
		body := encode(s.t, object)
		s.blameless(http.MethodPut, uri+query, "application/json", body, "application/vnd.kubernetes.protobuf")
		s.blameless(http.MethodPatch, uri+query, "application/merge-patch+json", body, "")
		s.blameless(http.MethodPatch, uri+query, "application/strategic-merge-patch+json", body, "application/json;as=Table;v=v1;g=meta.k8s.io")
		s.blameless(http.MethodPatch, uri+query+"&fieldManager=adversary&force=true", "application/apply-patch+yaml", body, "")
	}
}

// exact reads JSON with its numbers as they are.
func exact(t testing.TB, data []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// blameless sends a request and fails the test if the server takes the blame.
func (s *server) blameless(method, uri, contentType string, body []byte, accept string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r := httptest.NewRequest(method, uri, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", accept)
	admin := &user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r.WithContext(apirequest.WithUser(ctx, admin)))
	answer := w.Body.String()
	if strings.Contains(answer, "failed to create typed patch object") || strings.Contains(answer, "failed to convert new object") {
		return // upstream, too, takes a configuration that does not fit its schema for an error of its own
	}
	if w.Code == http.StatusInternalServerError || w.Code == http.StatusGatewayTimeout || strings.Contains(answer, "panic") {
		s.t.Errorf("%s %s %s %.3000s: %d %.500s", method, uri, contentType, body, w.Code, answer)
	}
}

// attacked are objects of every kind, each with a stored one of its kind.
func (s *server) attacked() (objects []resourcetest.Answer, kinds map[string]*resource.Resource, stored map[string]string) {
	kinds, stored = map[string]*resource.Resource{}, map[string]string{}
	for _, r := range s.resources {
		for i := range r.Versions {
			kinds[r.Versions[i].GroupVersion.String()+" "+r.Kind] = r
		}
	}
	for _, a := range valid(s.t) {
		if kinds[a.Kind] == nil {
			continue
		}
		plural := kinds[a.Kind].Plural
		if _, tried := stored[plural]; !tried && !kinds[a.Kind].Virtual() {
			stored[plural] = ""
			if o := s.do(http.MethodPost, s.collection(&a), "application/json", a.Request); o.Code == http.StatusCreated {
				stored[plural] = name(o.Object.(map[string]any))
			}
		}
		objects = append(objects, a)
	}
	return objects, kinds, stored
}

// TestSpoiltObjectsOfEveryKind sends objects of every kind with something
// wrong about them. More rounds than one are asked for by ADVERSARY_ROUNDS.
func TestSpoiltObjectsOfEveryKind(t *testing.T) {
	rounds := 1
	if text := os.Getenv("ADVERSARY_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, "api/all=true")
	objects, kinds, stored := s.attacked()
	for round := range rounds {
		for i := range objects {
			if i%8 == round%8 || rounds > 8 {
				s.attack(newAdversary(uint64(round*len(objects)+i)), kinds[objects[i].Kind], &objects[i], stored[kinds[objects[i].Kind].Plural])
			}
		}
	}
}

// FuzzSpoiltObjects is the same with seeds that the fuzzer chooses.
func FuzzSpoiltObjects(f *testing.F) {
	s := start(f, "api/all=true")
	objects, kinds, stored := s.attacked()
	for i := range 64 {
		f.Add(uint64(i)<<32, uint16(i*17))
	}
	f.Fuzz(func(t *testing.T, seed uint64, index uint16) {
		a := &objects[int(index)%len(objects)]
		s.t = t
		s.attack(newAdversary(seed), kinds[a.Kind], a, stored[kinds[a.Kind].Plural])
	})
}
