package resourcetest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/resource"
)

// Replay runs every answer about the resources through their rules. It fails
// the test for each difference that the file known (see NewReport) does not
// excuse, and for each line of that file that is no longer needed. admit may
// be nil. Replay logs a score for each kind.
func Replay(t *testing.T, resources []*resource.Resource, known string, admit Admission) {
	t.Helper()
	r := &replay{t: t, report: NewReport(t, known), servers: map[string]*server{}}
	for _, res := range resources {
		for i := range res.Versions {
			s := newServer(res, &res.Versions[i], admit)
			r.servers[s.kind.GroupVersion().String()+" "+s.kind.Kind] = s
		}
	}
	r.creates()
	r.updates()
	r.report.Finish()
}

type replay struct {
	t       *testing.T
	report  *Report
	servers map[string]*server
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

func (r *replay) check(a *Answer, got outcome) {
	o := Outcome{Code: got.code, Status: got.status}
	if got.object != nil {
		o.Object = got.object
	}
	r.report.Check(a, o)
}

// base returns the object that the following PUTs replace, as these rules
// store it.
func (r *replay) base(s *server, a *Answer) resource.Object {
	got := s.post(a.Request)
	if got.object == nil {
		r.t.Errorf("%s %s: base object refused: %s", a.ID, a.Kind, got.status.Message)
		return nil
	}
	got.object.SetResourceVersion("1")
	return s.version.ToHub(got.object)
}

// stored returns the same object as upstream stored it, including what its
// server set.
func (r *replay) stored(s *server, a *Answer) resource.Object {
	old, err := s.decode(a.Request)
	if err != nil {
		r.t.Errorf("%s %s: %v", a.ID, a.Kind, err)
		return nil
	}
	old.SetUID(testUID)
	if own := old.GetLabels()["batch.kubernetes.io/controller-uid"]; own != "" {
		old.SetUID(types.UID(own)) // a job's labels contain its uid
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
