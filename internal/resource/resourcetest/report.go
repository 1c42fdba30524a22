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
)

var (
	showDifferences = flag.Int("replay.show", 10, "how many differences to print, 0 for all")
	onlyMatching    = flag.String("replay.only", "", "replay only answers whose `kind|case` contains this")
)

// Outcome is the answer to a request, in the form of Answer.
type Outcome struct {
	Code   int
	Status metav1.Status // of a refused request
	Object any           // encodes as the JSON of the served version; nil when refused
}

// Report compares outcomes with upstream's answers and scores each kind. It is
// for use in one test.
type Report struct {
	t         *testing.T
	scores    map[string]*score
	excuses   map[string]string
	different int
}

// score counts the agreements: codes of all answers, causes of refused
// requests, objects of accepted ones.
type score struct {
	all, code, refused, causes, stored, object int
}

// NewReport returns a report that accepts the differences for which a file of known
// gives a reason. A file may be missing.
//
// A line of such a file is "create:17 v1 Pod: why". # begins a comment.
//
// With -args, -replay.show=N prints N differences and -replay.only=TEXT
// selects answers.
func NewReport(t *testing.T, known ...string) *Report {
	t.Helper()
	excuses := map[string]string{}
	for _, file := range known {
		if err := readExcuses(excuses, file); err != nil {
			t.Fatal(err)
		}
	}
	return &Report{t: t, scores: map[string]*score{}, excuses: excuses}
}

// Wants reports whether to replay an answer.
func (r *Report) Wants(a *Answer) bool {
	return strings.Contains(a.Kind+"|"+a.Case, *onlyMatching)
}

// Check counts an outcome. It fails the test if the outcome differs from
// upstream's answer without a known reason, or agrees although a difference is
// known.
func (r *Report) Check(a *Answer, got Outcome) {
	if !r.Wants(a) {
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

// Finish logs a score for each kind, and fails the test for each known
// difference that did not occur.
func (r *Report) Finish() {
	r.t.Helper()
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

// readExcuses adds the reasons in a file.
func readExcuses(excuses map[string]string, path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, " ")
		if !ok {
			return fmt.Errorf("%s: %q has no reason", path, line)
		}
		excuses[id] = reason
	}
	return lines.Err()
}
