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

// invalidValues returns values that a mutator puts in place of valid ones.
func invalidValues() []any {
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

// mutator makes valid objects invalid. Its choices depend on the seed alone.
type mutator struct {
	*rand.Rand
	values []any
}

func newMutator(seed uint64) *mutator {
	return &mutator{rand.New(rand.NewPCG(seed, 7)), invalidValues()}
}

// mutate changes one to three places of an object.
func (m *mutator) mutate(object any) any {
	for range 1 + m.IntN(3) {
		object = m.mutateAt(object, 0)
	}
	return object
}

func (m *mutator) value() any { return deepCopy(m.values[m.IntN(len(m.values))]) }

// deepCopy copies a JSON value, so that a mutation changes one place only.
func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for key, value := range v {
			c[key] = deepCopy(value)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, value := range v {
			c[i] = deepCopy(value)
		}
		return c
	}
	return v
}

// mutateAt changes one place at or below v. The deeper it is, the likelier it
// changes v itself.
func (m *mutator) mutateAt(v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 || depth > 1 && m.IntN(5) == 0 {
			return m.value()
		}
		keys := slices.Sorted(maps.Keys(v))
		key := keys[m.IntN(len(keys))]
		if depth == 0 && m.IntN(3) > 0 && v["spec"] != nil {
			key = "spec"
		}
		switch m.IntN(12) {
		case 0:
			delete(v, key)
		case 1:
			v[key] = m.value()
		case 2:
			v[keys[m.IntN(len(keys))]] = deepCopy(v[key])
		default:
			v[key] = m.mutateAt(v[key], depth+1)
		}
		return v
	case []any:
		if len(v) == 0 || m.IntN(8) == 0 {
			return m.value()
		}
		i := m.IntN(len(v))
		switch m.IntN(8) {
		case 0:
			return append(v, deepCopy(v[i]))
		case 1:
			return append(v, m.value())
		case 2:
			return slices.Delete(v, i, i+1)
		}
		v[i] = m.mutateAt(v[i], depth+1)
		return v
	}
	return m.value()
}

// sendMutated sends mutated forms of an object by each verb and in each format.
func (s *server) sendMutated(m *mutator, r *resource.Resource, answer *resourcetest.Answer, stored string) {
	collection := s.collections[answer.Kind]
	query := "?dryRun=All&fieldValidation=" + []string{"Ignore", "Warn", "Strict"}[m.IntN(3)]
	fresh := func() any {
		object := decodeNumbers(s.t, answer.Request)
		return m.mutate(object)
	}
	body := encode(s.t, fresh())
	s.sendChecked(http.MethodPost, collection+query, "application/json", body, "")
	if converted, err := yaml.JSONToYAML(body); err == nil {
		s.sendChecked(http.MethodPost, collection+query, "application/yaml", converted, "application/json;as=Table;v=v1;g=meta.k8s.io")
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
		if fields, ok := object.(map[string]any); ok { // so that it passes the first checks
			if metadata, ok := fields["metadata"].(map[string]any); ok {
				metadata["name"] = stored
			}
		}
		body := encode(s.t, object)
		s.sendChecked(http.MethodPut, uri+query, "application/json", body, "application/vnd.kubernetes.protobuf")
		s.sendChecked(http.MethodPatch, uri+query, "application/merge-patch+json", body, "")
		s.sendChecked(http.MethodPatch, uri+query, "application/strategic-merge-patch+json", body, "application/json;as=Table;v=v1;g=meta.k8s.io")
		s.sendChecked(http.MethodPatch, uri+query+"&fieldManager=mutator&force=true", "application/apply-patch+yaml", body, "")
	}
}

// decodeNumbers decodes JSON without converting numbers to float64.
func decodeNumbers(t testing.TB, data []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// sendChecked sends a request and fails the test if the response is a server
// error.
func (s *server) sendChecked(method, uri, contentType string, body []byte, accept string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r := httptest.NewRequest(method, uri, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", accept)
	admin := &user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r.WithContext(apirequest.WithUser(ctx, admin)))
	answer := w.Body.String()
	if strings.Contains(answer, "failed to create typed patch object") || strings.Contains(answer, "failed to convert new object") {
		return // upstream also reports a configuration that does not match its schema as a server error
	}
	if w.Code == http.StatusInternalServerError || w.Code == http.StatusGatewayTimeout || strings.Contains(answer, "panic") {
		s.t.Errorf("%s %s %s %.3000s: %d %.500s", method, uri, contentType, body, w.Code, answer)
	}
}

// mutationTargets returns valid objects of every kind, and the name of a stored
// object for each resource.
func (s *server) mutationTargets() (objects []resourcetest.Answer, kinds map[string]*resource.Resource, stored map[string]string) {
	kinds, stored = map[string]*resource.Resource{}, map[string]string{}
	for _, r := range s.resources {
		for i := range r.Versions {
			kinds[r.Versions[i].GroupVersion.String()+" "+r.Kind] = r
		}
	}
	for _, a := range validObjects(s.t) {
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

// TestMutatedObjectsOfEveryKind sends mutated objects of every kind.
// MUTATION_ROUNDS is the number of rounds. By default there is one round, with
// every eighth object.
func TestMutatedObjectsOfEveryKind(t *testing.T) {
	rounds := 1
	if text := os.Getenv("MUTATION_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, "api/all=true")
	objects, kinds, stored := s.mutationTargets()
	for round := range rounds {
		for i := range objects {
			if i%8 == round%8 || rounds > 8 {
				s.sendMutated(newMutator(uint64(round*len(objects)+i)), kinds[objects[i].Kind], &objects[i], stored[kinds[objects[i].Kind].Plural])
			}
		}
	}
}

// FuzzMutatedObjects does the same with seeds from the fuzzer.
func FuzzMutatedObjects(f *testing.F) {
	s := start(f, "api/all=true")
	objects, kinds, stored := s.mutationTargets()
	for i := range 64 {
		f.Add(uint64(i)<<32, uint16(i*17))
	}
	f.Fuzz(func(t *testing.T, seed uint64, index uint16) {
		a := &objects[int(index)%len(objects)]
		s.t = t
		s.sendMutated(newMutator(seed), kinds[a.Kind], a, stored[kinds[a.Kind].Plural])
	})
}
