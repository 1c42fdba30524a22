package resourcetest

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/resource"
)

var (
	showDifferences = flag.Int("replay.show", 10, "how many differences to print, 0 for all")
	onlyMatching    = flag.String("replay.only", "", "replay only answers whose `kind|case` contains this")
)

// Replay runs every answer about the resources through their rules and fails
// the test for each difference that the file known does not give a reason
// for, and for each line of that file which is no longer needed. admit may be
// nil. It logs a score for each kind.
//
// A line of known is "create:17 v1 Pod: why", # begins a comment.
//
// With -args, -replay.show=N prints N differences and -replay.only=TEXT picks
// answers.
func Replay(t *testing.T, resources []*resource.Resource, known string, admit Admission) {
	t.Helper()
	excuses, err := readExcuses(known)
	if err != nil {
		t.Fatal(err)
	}
	r := &replay{t: t, scores: map[string]*score{}, excuses: excuses, servers: map[string]*server{}}
	for _, res := range resources {
		for i := range res.Versions {
			s := newServer(res, &res.Versions[i], admit)
			r.servers[s.kind.GroupVersion().String()+" "+s.kind.Kind] = s
		}
	}
	r.creates()
	r.updates()
	r.report()
}

// score counts agreement: codes over all answers, causes over refusals,
// objects over acceptances.
type score struct {
	all, code, refused, causes, stored, object int
}

type replay struct {
	t         *testing.T
	servers   map[string]*server
	scores    map[string]*score
	excuses   map[string]string
	different int
}

func (r *replay) creates() {
	for _, a := range r.answers("create") {
		if s := r.servers[a.Kind]; s != nil {
			r.check(&a, s.post(a.Request))
		}
	}
}

func (r *replay) updates() {
	var old resource.Object
	for _, a := range r.answers("update") {
		s := r.servers[a.Kind]
		if s == nil {
			continue
		}
		if a.Case == "base" {
			old = r.base(s, &a)
			continue
		}
		if a.Case == "as is" {
			old = r.stored(s, &a)
		}
		if old != nil {
			r.check(&a, s.put(a.Request, old.DeepCopyObject().(resource.Object)))
		}
	}
}

// base is the object that the following PUTs replace, as these rules make it.
func (r *replay) base(s *server, a *Answer) resource.Object {
	got := s.post(a.Request)
	if got.object == nil {
		r.t.Errorf("%s %s: base object refused: %s", a.ID, a.Kind, got.status.Message)
		return nil
	}
	got.object.SetResourceVersion("1")
	return s.version.ToHub(got.object)
}

// stored is the same object as upstream has it, with what its server filled in.
func (r *replay) stored(s *server, a *Answer) resource.Object {
	old, err := s.decode(a.Request)
	if err != nil {
		r.t.Errorf("%s %s: %v", a.ID, a.Kind, err)
		return nil
	}
	old.SetUID(testUID)
	if own := old.GetLabels()["batch.kubernetes.io/controller-uid"]; own != "" {
		old.SetUID(types.UID(own)) // a job's labels tell its uid
	}
	old.SetResourceVersion("1")
	old.SetCreationTimestamp(metav1.NewTime(s.request.Now))
	if metadata, ok := a.Object["metadata"].(map[string]any); ok {
		if generation, ok := metadata["generation"].(float64); ok {
			old.SetGeneration(int64(generation))
		}
	}
	return old
}

func (r *replay) answers(file string) []Answer {
	all, err := Answers(file)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *replay) check(a *Answer, got outcome) {
	if !strings.Contains(a.Kind+"|"+a.Case, *onlyMatching) {
		return
	}
	d := compare(a, got)
	s := r.scores[a.Kind]
	if s == nil {
		s = &score{}
		r.scores[a.Kind] = s
	}
	s.add(a, d)
	_, excused := r.excuses[a.ID]
	delete(r.excuses, a.ID)
	switch {
	case excused && d.none():
		r.t.Errorf("%s %s, %s: agrees with upstream, take it off the known differences", a.ID, a.Kind, a.Case)
	case !excused && !d.none():
		r.different++
		if *showDifferences == 0 || r.different <= *showDifferences {
			r.t.Errorf("%s %s, %s:\n%s", a.ID, a.Kind, a.Case, d)
		}
	}
}

func (s *score) add(a *Answer, d difference) {
	s.all++
	count(&s.code, d.code == "")
	if a.Code >= 400 {
		s.refused++
		count(&s.causes, d.causes == "")
	} else {
		s.stored++
		count(&s.object, d.object == "")
	}
}

func count(n *int, agrees bool) {
	if agrees {
		*n++
	}
}

func (r *replay) report() {
	kinds := make([]string, 0, len(r.scores))
	total := &score{}
	for kind, s := range r.scores {
		kinds = append(kinds, kind)
		total.all, total.code = total.all+s.all, total.code+s.code
		total.refused, total.causes = total.refused+s.refused, total.causes+s.causes
		total.stored, total.object = total.stored+s.stored, total.object+s.object
	}
	sort.Strings(kinds)
	r.scores["total"] = total
	var table strings.Builder
	for _, kind := range append(kinds, "total") {
		s := r.scores[kind]
		fmt.Fprintf(&table, "%-50s code %s  causes %s  object %s\n", kind,
			ratio(s.code, s.all), ratio(s.causes, s.refused), ratio(s.object, s.stored))
	}
	r.t.Logf("agreement with upstream:\n%s", table.String())
	if r.different > 0 {
		r.t.Errorf("%d differences that are not in the known ones", r.different)
	}
	if *onlyMatching == "" {
		for id, reason := range r.excuses {
			r.t.Errorf("known difference %s (%s) is about none of the answers replayed", id, reason)
		}
	}
}

func ratio(n, of int) string {
	if of == 0 {
		return "           -"
	}
	return fmt.Sprintf("%4d/%4d %5.1f%%", n, of, 100*float64(n)/float64(of))
}

func readExcuses(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	excuses := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, " ")
		if !ok {
			return nil, fmt.Errorf("%s: %q has no reason", path, line)
		}
		excuses[id] = reason
	}
	return excuses, lines.Err()
}
