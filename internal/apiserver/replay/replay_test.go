// Package replay sends recorded requests, whose answers by upstream are known,
// through the whole API server, including admission, allocation and storage.
package replay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// dry is the query of the recorded requests.
const dry = "?dryRun=All&fieldValidation=Strict"

func TestUpstreamAnswers(t *testing.T) {
	s := start(t)
	rules, err := filepath.Glob("../../resource/*/testdata/differences.txt")
	if err != nil || len(rules) == 0 {
		t.Fatalf("no known differences of rules: %v", err)
	}
	report := resourcetest.NewReport(t, append(rules, "testdata/known-differences.txt")...)
	for _, a := range answers(t, "create") {
		if report.Wants(&a) {
			report.Check(&a, s.do(http.MethodPost, s.collection(&a)+dry, "application/json", a.Request))
		}
	}
	var base *baseObject
	for _, a := range answers(t, "update") {
		if a.Case == "base" {
			base.remove()
			base = newBase(s, &a)
			continue
		}
		if a.Case == "as is" {
			base.learnAllocated(a.Request)
		}
		if report.Wants(&a) {
			base.translate(&a)
			got := base.put(a.Request)
			removeAvailability(&got)
			report.Check(&a, got)
		}
	}
	base.remove()
	report.Finish()
}

// removeAvailability removes the conditions from an APIService. Both servers
// determine the availability asynchronously.
func removeAvailability(o *resourcetest.Outcome) {
	object, _ := o.Object.(map[string]any)
	if status, _ := object["status"].(map[string]any); object["kind"] == "APIService" && status != nil {
		delete(status, "conditions")
	}
}

func answers(t testing.TB, file string) []resourcetest.Answer {
	t.Helper()
	all, err := resourcetest.Answers(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (s *server) collection(a *resourcetest.Answer) string {
	path := s.collections[a.Kind]
	if path == "" {
		s.t.Fatalf("%s: %s is not served", a.ID, a.Kind)
	}
	return path
}

// baseObject is a stored object that the recorded PUTs update.
type baseObject struct {
	server     *server
	collection string
	stored     map[string]any
	// allocated maps the values that the recording server chose to those that
	// this server chose.
	allocated map[any]any
}

func newBase(s *server, a *resourcetest.Answer) *baseObject {
	b := &baseObject{server: s, collection: s.collection(a), allocated: map[any]any{}}
	b.stored = s.must(http.MethodPost, b.collection+"?fieldValidation=Strict", a.Request)
	return b
}

func (b *baseObject) remove() {
	if b != nil {
		b.server.remove(b.collection + "/" + name(b.stored))
	}
}

// learnAllocated finds out, from the recording server's form of the object,
// which values that server allocated.
func (b *baseObject) learnAllocated(request []byte) {
	matchAllocated("", decode(b.server.t, request), b.stored, b.allocated)
}

// translate replaces the recording server's values in the answer's messages.
func (b *baseObject) translate(a *resourcetest.Answer) {
	for theirs, ours := range b.allocated {
		from, text := theirs.(string)
		to, _ := ours.(string)
		if !text {
			from, to = fmt.Sprintf("%.0f", theirs), fmt.Sprintf("%.0f", ours)
		}
		for i := range a.Causes {
			a.Causes[i].Message = strings.ReplaceAll(a.Causes[i].Message, from, to)
		}
	}
}

// put sends a PUT with the fields that only a server sets, as a client would
// have read them from this server.
func (b *baseObject) put(request []byte) resourcetest.Outcome {
	object := replaceAllocated(decode(b.server.t, request), b.allocated).(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	own := b.stored["metadata"].(map[string]any)
	for _, key := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		if _, set := metadata[key]; !set && metadata != nil && metadata["name"] == own["name"] {
			metadata[key] = own[key]
		}
	}
	uri := b.collection + "/" + url.PathEscape(name(object))
	out := b.server.do(http.MethodPut, uri+dry, "application/json", encode(b.server.t, object))
	if out.Code == http.StatusConflict && metadata != nil && metadata["resourceVersion"] == own["resourceVersion"] {
		// The server itself may have written the status since.
		latest, _ := b.server.do(http.MethodGet, uri, "", nil).Object.(map[string]any)
		if fresh, _ := latest["metadata"].(map[string]any); fresh != nil {
			own["resourceVersion"], metadata["resourceVersion"] = fresh["resourceVersion"], fresh["resourceVersion"]
			return b.server.do(http.MethodPut, uri+dry, "application/json", encode(b.server.t, object))
		}
	}
	return out
}

func name(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

func decode(t testing.TB, data []byte) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	return object
}
