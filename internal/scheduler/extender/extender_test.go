package extender

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// server answers each path with a text and remembers what it was asked.
type server struct {
	*httptest.Server
	answers map[string]string

	mu    sync.Mutex // guards asked
	asked map[string]map[string]any
}

func serve(t *testing.T, answers map[string]string) *server {
	s := &server{answers: answers, asked: map[string]map[string]any{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var arguments map[string]any
	if err := json.NewDecoder(r.Body).Decode(&arguments); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.asked[r.URL.Path] = arguments
	s.mu.Unlock()
	switch answer := s.answers[r.URL.Path]; answer {
	case "":
		http.Error(w, "no", http.StatusInternalServerError)
	case "redirect":
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	case "hang":
		<-r.Context().Done()
	case "endless":
		for {
			if _, err := io.WriteString(w, strings.Repeat(" ", 1<<16)); err != nil {
				return
			}
		}
	default:
		_, _ = io.WriteString(w, answer)
	}
}

func newPod(name string, priority int32, resources ...string) *framework.PodInfo {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	p.Spec.Priority = &priority
	list := v1.ResourceList{}
	for _, r := range resources {
		list[v1.ResourceName(r)] = resource.MustParse("1")
	}
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}}
	return framework.NewPodInfo(p)
}

// cluster is a snapshot of nodes a, b and c, with pods of the given priorities.
func cluster(pods map[string]int32) *framework.Snapshot {
	s := framework.NewSnapshot()
	for _, name := range []string{"a", "b", "c"} {
		s.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		s.AddPod(newPod(name, pods[name]), name[:1])
	}
	return s
}

func extendersOf(t *testing.T, list ...config.Extender) *Extenders {
	t.Helper()
	e, err := New(list)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// describe writes the outcome of Filter.
func describe(nodes []*framework.NodeInfo, rejected map[string]*framework.Status, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(rejected)) {
		out = append(out, fmt.Sprintf("%s=%s(%s)", name, rejected[name].Code(), rejected[name].Message()))
	}
	return strings.Join(out, " ")
}

func TestFilter(t *testing.T) {
	for _, test := range []struct {
		name, answer string
		extender     config.Extender
		want         string
	}{
		{"nodes", `{"Nodes": {"items": [{"metadata": {"name": "c"}}, {"metadata": {"name": "a"}}]}, "FailedNodes": {"b": "too warm"}}`, config.Extender{}, "a c b=Unschedulable(too warm)"},
		{"names in any case", `{"nodenames": ["b", "b"], "failedNodes": {"a": "x", "c": "x"}}`, config.Extender{NodeCacheCapable: true}, "b a=Unschedulable(x) c=Unschedulable(x)"},
		{"unresolvable is stronger", `{"NodeNames": ["b"], "FailedNodes": {"a": "x"}, "FailedAndUnresolvableNodes": {"a": "y"}}`, config.Extender{NodeCacheCapable: true}, "b a=UnschedulableAndUnresolvable(y)"},
		{"nodes of one that was sent names", `{"Nodes": {"items": [{"metadata": {"name": "a"}}]}}`, config.Extender{NodeCacheCapable: true}, "a"},
		{"a node with a quantity that takes hours to parse", `{"Nodes": {"items": [{"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "1e-900000000"}}}]}}`, config.Extender{}, "a"},
		{"names of one that was sent nodes", `{"NodeNames": ["a"]}`, config.Extender{}, ""},
		{"nothing", `{}`, config.Extender{}, ""},
		{"failed nodes that nobody asked about", `{"NodeNames": ["a"], "FailedNodes": {"z": "x"}}`, config.Extender{NodeCacheCapable: true}, "a"},
		{"a node that nobody asked about", `{"NodeNames": ["a", "z"]}`, config.Extender{NodeCacheCapable: true}, `error: extender "URL" claims a filtered node "z" which is not found in the input node list`},
		{"an error", `{"Error": "out of order"}`, config.Extender{}, "error: out of order"},
		{"an error of an ignorable one", `{"Error": "out of order"}`, config.Extender{Ignorable: true}, "a b c"},
		{"a failure", "", config.Extender{}, "error: failed filter with extender at URL URL/filter, code 500"},
		{"a failure of an ignorable one", "", config.Extender{Ignorable: true}, "a b c"},
		{"no JSON", "yes", config.Extender{}, "error: failed filter with extender at URL URL/filter: invalid character 'y' looking for beginning of value"},
		{"a redirect", "redirect", config.Extender{}, "error: failed filter with extender at URL URL/filter, code 307"},
		{"an endless answer", "endless", config.Extender{}, "error: failed filter with extender at URL URL/filter: the answer has more than"},
		{"a long message", `{"Error": "` + strings.Repeat("é", 1000) + `"}`, config.Extender{}, "error: " + strings.Repeat("é", 128) + " ..."},
		{"no interest", "", config.Extender{ManagedResources: []config.ExtenderResource{{Name: "example.com/other"}}}, "a b c"},
		{"interest", `{}`, config.Extender{ManagedResources: []config.ExtenderResource{{Name: "example.com/other"}, {Name: "example.com/device"}}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, map[string]string{"/v1/filter": test.answer})
			test.extender.URLPrefix, test.extender.FilterVerb = s.URL+"/v1/", "filter"
			e := extendersOf(t, test.extender)
			nodes, rejected, err := e.Filter(t.Context(), newPod("p", 0, "example.com/device"), cluster(nil).Nodes())
			got := strings.ReplaceAll(describe(nodes, rejected, err), s.URL+"/v1", "URL")
			if got != test.want && (test.answer != "endless" || !strings.HasPrefix(got, test.want)) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// What extenders are sent: whole nodes, or their names if they know them.
func TestArguments(t *testing.T) {
	s := serve(t, map[string]string{"/nodes": `{}`, "/names": `{}`})
	for _, verb := range []string{"nodes", "names"} {
		e := extendersOf(t, config.Extender{URLPrefix: s.URL, FilterVerb: verb, NodeCacheCapable: verb == "names"})
		if _, _, err := e.Filter(t.Context(), newPod("p", 0), cluster(nil).Nodes()); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(s.asked["/names"]["NodeNames"], s.asked["/names"]["Nodes"]); got != "[a b c] <nil>" {
		t.Errorf("one that knows the nodes was sent %s", got)
	}
	items := s.asked["/nodes"]["Nodes"].(map[string]any)["items"].([]any)
	if len(items) != 3 || s.asked["/nodes"]["NodeNames"] != nil || items[0].(map[string]any)["metadata"].(map[string]any)["name"] != "a" {
		t.Errorf("one that does not know the nodes was sent %v", s.asked["/nodes"])
	}
	if name := s.asked["/nodes"]["Pod"].(map[string]any)["metadata"].(map[string]any)["name"]; name != "p" {
		t.Errorf("the pod is %v", name)
	}
}

// Ignorable extenders are asked last, and only about the nodes that are left;
// no extender is asked when no node is left.
func TestFilterOrder(t *testing.T) {
	s := serve(t, map[string]string{"/ignorable": `{"NodeNames": ["a"]}`, "/strict": `{"NodeNames": ["a", "b"]}`, "/none": `{}`})
	e := extendersOf(t,
		config.Extender{URLPrefix: s.URL, FilterVerb: "ignorable", Ignorable: true, NodeCacheCapable: true},
		config.Extender{URLPrefix: s.URL, FilterVerb: "strict", NodeCacheCapable: true},
	)
	nodes, _, err := e.Filter(t.Context(), newPod("p", 0), cluster(nil).Nodes())
	if got := describe(nodes, nil, err); got != "a" || fmt.Sprint(s.asked["/ignorable"]["NodeNames"]) != "[a b]" {
		t.Errorf("left %s, the ignorable one was asked about %v", got, s.asked["/ignorable"]["NodeNames"])
	}
	e = extendersOf(t, config.Extender{URLPrefix: s.URL, FilterVerb: "none"}, config.Extender{URLPrefix: s.URL, FilterVerb: "never"})
	if nodes, _, err := e.Filter(t.Context(), newPod("p", 0), cluster(nil).Nodes()); len(nodes) > 0 || err != nil || s.asked["/never"] != nil {
		t.Errorf("%v, %v: an extender was asked about no nodes: %v", nodes, err, s.asked["/never"])
	}
}

// A pod's condition does not grow with the messages of an extender.
func TestMessagesAreBounded(t *testing.T) {
	r := &reasons{statuses: map[reason]*framework.Status{}}
	for i := range 1000 {
		r.status(framework.Unschedulable, fmt.Sprint(i))
	}
	if n := len(r.statuses); n > maxMessages+1 {
		t.Errorf("%d messages, want at most %d", n, maxMessages+1)
	}
}

func TestPrioritize(t *testing.T) {
	s := serve(t, map[string]string{
		"/one": `[{"Host": "a", "Score": 10}, {"Host": "b", "Score": 1}, {"Host": "z", "Score": 5}]`, "/two": `[{"host": "b", "score": 2}]`,
		"/huge": `[{"Host": "a", "Score": 9223372036854775807}, {"Host": "b", "Score": -5}]`, "/bad": `{"Host": "a"}`,
	})
	extender := func(verb string, weight int64) config.Extender {
		return config.Extender{URLPrefix: s.URL, PrioritizeVerb: verb, Weight: weight}
	}
	for _, test := range []struct {
		name      string
		extenders []config.Extender
		want      string
	}{
		{"none", nil, "[1 2 3]"},
		{"scores are scaled by ten and by the weight", []config.Extender{extender("one", 3)}, "[301 32 3]"},
		{"scores of several add up", []config.Extender{extender("one", 1), extender("two", 2)}, "[101 52 3]"},
		{"one that fails has no say", []config.Extender{extender("one", 1), extender("bad", 2), extender("missing", 2)}, "[101 12 3]"},
		{"no score overflows or is negative", []config.Extender{extender("huge", 2), extender("one", 1)}, "[9223372036854775807 12 3]"},
		{"without a verb there are no scores", []config.Extender{{URLPrefix: s.URL, FilterVerb: "one", Weight: 1}}, "[1 2 3]"},
	} {
		scores := []int64{1, 2, 3}
		extendersOf(t, test.extenders...).Prioritize(t.Context(), newPod("p", 0), cluster(nil).Nodes(), scores)
		if got := fmt.Sprint(scores); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// An error about an answer does not quote all of it.
func TestErrorsAboutAnswersAreShort(t *testing.T) {
	s := serve(t, map[string]string{"/preempt": `{"NodeNameToMetaVictims": {"a": {"NumPDBViolations": ` + strings.Repeat("1", 100_000) + `}}}`})
	snapshot := cluster(map[string]int32{"a1": 1, "b1": 1})
	e := extendersOf(t, config.Extender{URLPrefix: s.URL, PreemptVerb: "preempt"})
	if _, err := e.ProcessPreemption(t.Context(), newPod("p", 5), snapshot, candidates(snapshot)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%.1000v, want a short error", err)
	}
}

func TestBind(t *testing.T) {
	s := serve(t, map[string]string{"/bind": `{}`, "/refuse": `{"Error": "not today"}`})
	for _, test := range []struct {
		name      string
		extenders []config.Extender
		bound     bool
		err       string
	}{
		{"bound", []config.Extender{{FilterVerb: "f"}, {BindVerb: "bind"}}, true, ""},
		{"refused", []config.Extender{{BindVerb: "refuse"}}, true, "not today"},
		{"refused by an ignorable one", []config.Extender{{BindVerb: "refuse", Ignorable: true}}, false, ""},
		{"no interest", []config.Extender{{BindVerb: "bind", ManagedResources: []config.ExtenderResource{{Name: "example.com/device"}}}}, false, ""},
	} {
		for i := range test.extenders {
			test.extenders[i].URLPrefix = s.URL
		}
		bound, err := extendersOf(t, test.extenders...).Bind(t.Context(), newPod("p", 0), "a")
		if bound != test.bound || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: %t, %v", test.name, bound, err)
		}
	}
	if want := map[string]any{"PodName": "p", "PodNamespace": "default", "PodUID": "p", "Node": "a"}; !maps.Equal(s.asked["/bind"], want) {
		t.Errorf("asked %v, want %v", s.asked["/bind"], want)
	}
}

func TestProcessPreemption(t *testing.T) {
	for _, test := range []struct {
		name, answer string
		extender     config.Extender
		want         string
	}{
		{"a node is left out", `{"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "b1"}]}}}`, config.Extender{}, "b:b1/0"},
		{"other victims", `{"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "a2"}, {"UID": "a2"}, null], "NumPDBViolations": 1}}}`, config.Extender{}, "a:a2/1"},
		{"no node is left", `{}`, config.Extender{}, ""},
		{"a node without victims", `{"NodeNameToMetaVictims": {"a": {"Pods": []}}}`, config.Extender{}, `error: expected at least one victim pod on node "a"`},
		{"a node without victims of an ignorable one", `{"NodeNameToMetaVictims": {"a": null, "b": {"Pods": [{"UID": "b1"}]}}}`, config.Extender{Ignorable: true}, "b:b1/0"},
		{"a node that is no candidate", `{"NodeNameToMetaVictims": {"c": {"Pods": [{"UID": "c1"}]}}}`, config.Extender{}, `error: extender "URL" claims to preempt on node "c", which is not a candidate`},
		{"a pod of another node", `{"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "b1"}]}}}`, config.Extender{}, `error: extender "URL" claims to preempt pod (UID: b1) on node "a", but the pod is not found on that node`},
		{"a pod of higher priority", `{"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "a9"}]}}}`, config.Extender{}, `error: extender "URL" claims to preempt pod default/a9 on node "a", but its priority is not lower`},
		{"a failure", "", config.Extender{}, "error: failed preempt with extender at URL URL/preempt, code 500"},
		{"a failure of an ignorable one", "", config.Extender{Ignorable: true}, "a:a1/2 b:b1/0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, map[string]string{"/preempt": test.answer})
			test.extender.URLPrefix, test.extender.PreemptVerb = s.URL, "preempt"
			snapshot := cluster(map[string]int32{"a1": 1, "a2": 2, "a9": 9, "b1": 1, "c1": 1})
			left, err := extendersOf(t, test.extender).ProcessPreemption(t.Context(), newPod("p", 5), snapshot, candidates(snapshot))
			if got := strings.ReplaceAll(describeVictims(left, err), s.URL, "URL"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func candidates(s *framework.Snapshot) map[string]framework.Victims {
	return map[string]framework.Victims{
		"a": {Pods: []*framework.PodInfo{s.PodOn("a", "a1")}, NumPDBViolations: 2}, "b": {Pods: []*framework.PodInfo{s.PodOn("b", "b1")}},
	}
}

func describeVictims(left map[string]framework.Victims, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var out []string
	for _, node := range slices.Sorted(maps.Keys(left)) {
		var names []string
		for _, p := range left[node].Pods {
			names = append(names, p.Pod.Name)
		}
		out = append(out, fmt.Sprintf("%s:%s/%d", node, strings.Join(names, "+"), left[node].NumPDBViolations))
	}
	return strings.Join(out, " ")
}

// An extender that knows the cluster is sent the UIDs of victims, another one
// the pods.
func TestPreemptionArguments(t *testing.T) {
	snapshot := cluster(map[string]int32{"a1": 1, "b1": 1})
	for cached, want := range map[bool]string{true: "<nil> map[NumPDBViolations:2 Pods:[map[UID:a1]]]", false: "a1 <nil>"} {
		s := serve(t, map[string]string{"/preempt": `{}`})
		e := extendersOf(t, config.Extender{URLPrefix: s.URL, PreemptVerb: "preempt", NodeCacheCapable: cached})
		if _, err := e.ProcessPreemption(t.Context(), newPod("p", 5), snapshot, candidates(snapshot)); err != nil {
			t.Fatal(err)
		}
		var whole, meta any
		if victims, ok := s.asked["/preempt"]["NodeNameToVictims"].(map[string]any); ok {
			pods := victims["a"].(map[string]any)["Pods"].([]any)
			whole = pods[0].(map[string]any)["metadata"].(map[string]any)["name"]
		}
		if victims, ok := s.asked["/preempt"]["NodeNameToMetaVictims"].(map[string]any); ok {
			meta = victims["a"]
		}
		if got := fmt.Sprint(whole, " ", meta); got != want {
			t.Errorf("nodeCacheCapable %t: sent %s, want %s", cached, got, want)
		}
	}
}

func TestTimeout(t *testing.T) {
	s := serve(t, map[string]string{"/filter": "hang"})
	e := extendersOf(t, config.Extender{URLPrefix: s.URL, FilterVerb: "filter", HTTPTimeout: 20 * time.Millisecond})
	if _, _, err := e.Filter(t.Context(), newPod("p", 0), cluster(nil).Nodes()); err == nil || !strings.Contains(err.Error(), "Client.Timeout exceeded") {
		t.Errorf("%v, want a timeout", err)
	}
}

func TestHTTPS(t *testing.T) {
	s := &server{answers: map[string]string{"/filter": `{"NodeNames": ["a"]}`}, asked: map[string]map[string]any{}}
	s.Server = httptest.NewTLSServer(s)
	defer s.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for _, test := range []struct {
		name string
		tls  *config.ExtenderTLS
		on   bool
		want string
	}{
		{"with its authority", &config.ExtenderTLS{CAData: authority}, true, "a"},
		{"under another name", &config.ExtenderTLS{CAData: authority, ServerName: "extender.example"}, true, "x509"},
		{"without an authority nothing is verified", nil, true, "a"},
		{"insecure", &config.ExtenderTLS{Insecure: true}, false, "a"},
		{"without enableHTTPS the machine's authorities count", nil, false, "x509"},
	} {
		e := extendersOf(t, config.Extender{URLPrefix: s.URL, FilterVerb: "filter", EnableHTTPS: test.on, TLS: test.tls, NodeCacheCapable: true})
		nodes, rejected, err := e.Filter(t.Context(), newPod("p", 0), cluster(nil).Nodes())
		if got := describe(nodes, rejected, err); got != test.want && !strings.Contains(got, test.want+":") {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for want, e := range map[string]config.Extender{
		"extenders[0].urlPrefix: Invalid value: \"\": must begin with":                  {},
		"extenders[0].urlPrefix: Invalid value: \"ftp://a\"":                            {URLPrefix: "ftp://a"},
		"extenders[0].urlPrefix: Invalid value: \"http://%zz\"":                         {URLPrefix: "http://%zz"},
		"must begin with https:// if enableHTTPS is set":                                {URLPrefix: "http://a", EnableHTTPS: true},
		"extenders[0].tlsConfig: open /absent/ca.crt":                                   {URLPrefix: "https://a", TLS: &config.ExtenderTLS{CAFile: "/absent/ca.crt"}},
		"extenders[0].tlsConfig: specifying a root certificates file with the insecure": {URLPrefix: "https://a", TLS: &config.ExtenderTLS{Insecure: true, CAData: []byte("x")}},
	} {
		if _, err := New([]config.Extender{e}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
